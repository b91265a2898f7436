// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"slices"
	"testing"
)

func TestIssue(t *testing.T) {
	certificate, key := filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "ca.key")
	pair, err := NewAuthority("authority")
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Save(certificate, key); err != nil {
		t.Fatal(err)
	}
	authority, err := LoadAuthority(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pair.Certificate) {
		t.Fatal("the authority's certificate cannot be read")
	}
	for name, test := range map[string]struct {
		holder Holder
		usage  x509.ExtKeyUsage
	}{
		"client": {Holder{Name: "admin", Groups: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth},
		"server": {Holder{Name: "server", Hosts: []string{"127.0.0.1", "localhost"}}, x509.ExtKeyUsageServerAuth},
	} {
		t.Run(name, func(t *testing.T) {
			issued, err := authority.Issue(test.holder)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := tls.X509KeyPair(issued.Certificate, issued.Key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{test.usage}}); err != nil {
				t.Error(err)
			}
			if loaded.Leaf.Subject.CommonName != test.holder.Name || !slices.Equal(loaded.Leaf.Subject.Organization, test.holder.Groups) {
				t.Errorf("subject is %s", loaded.Leaf.Subject)
			}
			for _, host := range test.holder.Hosts {
				if err := loaded.Leaf.VerifyHostname(host); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
