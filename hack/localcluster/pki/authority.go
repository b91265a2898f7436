// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of a local cluster. One authority signs all of
// them, servers' and clients' alike.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const validity = 10 * 365 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	Pair
	certificate *x509.Certificate
	key         crypto.PrivateKey
}

// Pair is a certificate and its private key, both PEM encoded.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Holder is the holder of a certificate.
type Holder struct {
	Name   string
	Groups []string
	// Hosts are the DNS names and addresses of a server; a client has none.
	Hosts []string
}

// NewAuthority makes a new authority.
func NewAuthority(name string) (*Authority, error) {
	template := newTemplate(Holder{Name: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	pair, err := sign(template, nil)
	if err != nil {
		return nil, err
	}
	return parse(pair)
}

// LoadAuthority returns the authority whose pair was saved to the files.
func LoadAuthority(certificateFile, keyFile string) (*Authority, error) {
	certificate, certificateErr := os.ReadFile(certificateFile)
	key, keyErr := os.ReadFile(keyFile)
	if err := errors.Join(certificateErr, keyErr); err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	return parse(Pair{certificate, key})
}

func parse(pair Pair) (*Authority, error) {
	loaded, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("parse the authority: %w", err)
	}
	return &Authority{Pair: pair, certificate: loaded.Leaf, key: loaded.PrivateKey}, nil
}

// Issue makes a new key and a certificate for it.
func (a *Authority) Issue(holder Holder) (Pair, error) {
	return sign(newTemplate(holder), a)
}

// newTemplate has no serial number, so that each certificate gets a random one.
func newTemplate(holder Holder) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: holder.Name, Organization: holder.Groups},
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range holder.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}

// sign makes a new key and a certificate for it. Without an authority the certificate signs itself.
func sign(template *x509.Certificate, authority *Authority) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate a key: %w", err)
	}
	if authority == nil {
		authority = &Authority{certificate: template, key: key}
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, authority.certificate, &key.PublicKey, authority.key)
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
	if err := errors.Join(cert.WriteCert(certificateFile, p.Certificate), keyutil.WriteKey(keyFile, p.Key)); err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	return nil
}
