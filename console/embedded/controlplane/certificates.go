package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

// identity is who a client certificate says its holder is: a user and a group, in Kubernetes' terms.
type identity struct{ file, user, group string }

var clients = []identity{
	{"admin", "gpu-tenancy-admin", "system:masters"},
	{"controller-manager", "system:kube-controller-manager", ""},
	{"scheduler", "system:kube-scheduler", ""},
	{"kwok", "gpu-tenancy-kwok", ""},
	{"etcd-client", "kube-apiserver", ""},
}

const lifetime = 10 * 365 * 24 * time.Hour

// certificates writes a certificate authority, a serving certificate for loopback, a certificate for each client, and
// the key that signs service accounts' tokens into one folder, so that a machine needs no other program for it.
func certificates(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: controlplane certificates FOLDER")
	}
	folder := args[0]
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	authorityKey, err := newKey()
	if err != nil {
		return err
	}
	authority := template("gpu-tenancy-embedded", "")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	issue := func(file string, certificate *x509.Certificate) error {
		key, err := newKey()
		if err != nil {
			return err
		}
		return write(folder, file, certificate, authority, key, authorityKey)
	}
	if err := write(folder, "authority", authority, authority, authorityKey, authorityKey); err != nil {
		return err
	}
	serving := template("localhost", "")
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)}
	serving.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if err := issue("serving", serving); err != nil {
		return err
	}
	for _, client := range clients {
		certificate := template(client.user, client.group)
		certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if err := issue(client.file, certificate); err != nil {
			return err
		}
	}
	serviceAccounts, err := newKey()
	if err != nil {
		return err
	}
	return writeKey(filepath.Join(folder, "service-accounts.key"), serviceAccounts)
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func template(user, group string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // The system has no randomness: nothing after this could be secure.
	}
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour), // Clocks differ a little.
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
}

func write(folder, file string, certificate, authority *x509.Certificate, key, authorityKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, certificate, authority, &key.PublicKey, authorityKey)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(filepath.Join(folder, file+".crt"), text, 0o600); err != nil {
		return err
	}
	return writeKey(filepath.Join(folder, file+".key"), key)
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	// The API server reads keys of service accounts in no other form.
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
