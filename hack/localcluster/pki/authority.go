// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of a local cluster. One authority signs all of
// them, servers' and clients' alike.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const validity = 10 * 365 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair is a certificate and its private key, both PEM encoded.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Subject says whom a certificate is for.
type Subject struct {
	Name   string
	Groups []string
	// Hosts are the DNS names and addresses of a server; a client has none.
	Hosts []string
}

// NewAuthority makes a new authority and returns it with its own pair.
func NewAuthority(name string) (*Authority, Pair, error) {
	template, err := newTemplate(Subject{Name: name})
	if err != nil {
		return nil, Pair{}, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("generate a key: %w", err)
	}
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, Pair{}, err
	}
	return &Authority{certificate: template, key: key}, pair, nil
}

// LoadAuthority returns the authority whose pair was saved to the files.
func LoadAuthority(certificateFile, keyFile string) (*Authority, Pair, error) {
	var pair Pair
	for file, content := range map[string]*[]byte{certificateFile: &pair.Certificate, keyFile: &pair.Key} {
		read, err := os.ReadFile(file)
		if err != nil {
			return nil, Pair{}, fmt.Errorf("read the authority: %w", err)
		}
		*content = read
	}
	loaded, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("parse the authority: %w", err)
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, Pair{}, fmt.Errorf("the authority's key is a %T", loaded.PrivateKey)
	}
	return &Authority{certificate: loaded.Leaf, key: key}, pair, nil
}

// Issue makes a new key and a certificate for it.
func (a *Authority) Issue(subject Subject) (Pair, error) {
	template, err := newTemplate(subject)
	if err != nil {
		return Pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate a key: %w", err)
	}
	return sign(template, a.certificate, key, a.key)
}

func newTemplate(subject Subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject.Name, Organization: subject.Groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range subject.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (Pair, error) {
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key of %s: %w", template.Subject.CommonName, err)
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedKey}),
	}, nil
}

// Save writes the pair, the key readable by the owner only.
func (p Pair) Save(certificateFile, keyFile string) error {
	for file, content := range map[string][]byte{certificateFile: p.Certificate, keyFile: p.Key} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("create the directory of certificates: %w", err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}
