// Go's crypto/x509 and crypto/tls as a judge of chains, with the standard library alone.
//
//	validate chains   JSON lines {"name","chain","roots","at"} in, {"name","server","client"} out; an empty text is consent
//	validate istiod DIR AT   does with the files of cacerts what istiod does before it starts
//	validate mtls DIR AT     a handshake of leaf.pem and leaf.key with itself under root.pem, both ends verified
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

type question struct {
	Name  string   `json:"name"`
	Chain [][]byte `json:"chain"`
	Roots [][]byte `json:"roots"`
	At    int64    `json:"at"`
}

type answer struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Client string `json:"client"`
}

func verify(q question, usage x509.ExtKeyUsage) error {
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		CurrentTime: time.Unix(q.At, 0), KeyUsages: []x509.ExtKeyUsage{usage},
	}
	for _, der := range q.Roots {
		// AppendCertsFromPEM leaves out what it can't read, too.
		if root, err := x509.ParseCertificate(der); err == nil {
			options.Roots.AddCert(root)
		}
	}
	var leaf *x509.Certificate
	for i, der := range q.Chain {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		if i == 0 {
			leaf = certificate
		} else {
			options.Intermediates.AddCert(certificate)
		}
	}
	if leaf == nil {
		return errors.New("no certificate")
	}
	_, err := leaf.Verify(options)
	return err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func chains() error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(os.Stdout)
	for decoder.More() {
		var q question
		if err := decoder.Decode(&q); err != nil {
			return err
		}
		a := answer{q.Name, text(verify(q, x509.ExtKeyUsageServerAuth)), text(verify(q, x509.ExtKeyUsageClientAuth))}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

func pool(path string) (*x509.CertPool, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bytes) {
		return nil, fmt.Errorf("%s: no certificate", path)
	}
	return pool, nil
}

// What istiod does with a plugged-in CA (security/pkg/pki/util Verify): the first certificate of ca-cert.pem from the roots through the
// chain, with the defaults of Go; the key must belong to it; and it must be a CA.
func istiod(dir string, at time.Time) error {
	file := func(name string) string { return filepath.Join(dir, name) }
	roots, err := pool(file("root-cert.pem"))
	if err != nil {
		return err
	}
	chain, err := pool(file("cert-chain.pem"))
	if err != nil {
		return err
	}
	bytes, err := os.ReadFile(file("ca-cert.pem"))
	if err != nil {
		return err
	}
	block, _ := pem.Decode(bytes)
	if block == nil {
		return errors.New("ca-cert.pem: no PEM block")
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if _, err := ca.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, CurrentTime: at}); err != nil {
		return err
	}
	if !ca.IsCA {
		return errors.New("ca-cert.pem: not a CA")
	}
	_, err = tls.LoadX509KeyPair(file("ca-cert.pem"), file("ca-key.pem"))
	return err
}

func mtls(dir string, at time.Time) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "leaf.pem"), filepath.Join(dir, "leaf.key"))
	if err != nil {
		return err
	}
	roots, err := pool(filepath.Join(dir, "root.pem"))
	if err != nil {
		return err
	}
	clock := func() time.Time { return at }
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, Time: clock}
	// A SPIFFE leaf has no DNS name: the path is verified, the name is the ID.
	client := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, Time: clock}
	client.VerifyConnection = func(state tls.ConnectionState) error {
		intermediates := x509.NewCertPool()
		for _, certificate := range state.PeerCertificates[1:] {
			intermediates.AddCert(certificate)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: at})
		return err
	}
	here, there := net.Pipe()
	failed := make(chan error, 1)
	go func() {
		connection := tls.Server(there, server)
		err := connection.Handshake()
		if err == nil {
			_, err = connection.Write([]byte("k"))
		}
		failed <- err
	}()
	connection := tls.Client(here, client)
	if err := connection.Handshake(); err != nil {
		return err
	}
	if _, err := connection.Read(make([]byte, 1)); err != nil {
		return err
	}
	return <-failed
}

func run(arguments []string) error {
	if len(arguments) == 1 && arguments[0] == "chains" {
		return chains()
	}
	if len(arguments) != 3 {
		return errors.New("usage: validate chains | istiod DIR AT | mtls DIR AT")
	}
	seconds, err := strconv.ParseInt(arguments[2], 10, 64)
	if err != nil {
		return err
	}
	switch arguments[0] {
	case "istiod":
		return istiod(arguments[1], time.Unix(seconds, 0))
	case "mtls":
		return mtls(arguments[1], time.Unix(seconds, 0))
	}
	return errors.New("usage: validate chains | istiod DIR AT | mtls DIR AT")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
