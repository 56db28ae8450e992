// Issues X.509-SVIDs for a request in a loop; prints how many for a second of processor time, and for one by the clock.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	seconds := must(strconv.Atoi(os.Args[1]))
	caKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	id := must(url.Parse("spiffe://fabric.example/ns/payments/sa/api"))
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.AddDate(0, 3, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, caKey.Public(), caKey))))
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id}}, key))
	limit := new(big.Int).Lsh(big.NewInt(1), 127)

	count, started, used := 0, time.Now(), cpu()
	for time.Since(started) < time.Duration(seconds)*time.Second {
		csr := must(x509.ParseCertificateRequest(request))
		if err := csr.CheckSignature(); err != nil {
			panic(err)
		}
		now := time.Now()
		leaf := &x509.Certificate{
			SerialNumber: must(rand.Int(rand.Reader, limit)), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			URIs:        []*url.URL{id}, DNSNames: []string{"api.payments.example"},
		}
		must(x509.CreateCertificate(rand.Reader, leaf, ca, csr.PublicKey, caKey))
		count++
	}
	fmt.Printf("%f %f\n", float64(count)/(cpu()-used).Seconds(), float64(count)/time.Since(started).Seconds())
}
