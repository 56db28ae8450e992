// Verifies node.pem's first certificate, with all of chain.pem as intermediates, against every root of roots.pem.
package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

func certificates(name string) []*x509.Certificate {
	text, err := os.ReadFile(name)
	if err != nil {
		panic(err)
	}
	var list []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			panic(err)
		}
		list = append(list, certificate)
	}
	return list
}

func pool(list []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, certificate := range list {
		pool.AddCert(certificate)
	}
	return pool
}

func main() {
	leaf := certificates("node.pem")[0]
	roots, chain := certificates("roots.pem"), certificates("chain.pem")
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: pool(roots), Intermediates: pool(chain), KeyUsages: usages})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(roots), len(chain), len(chains))
}
