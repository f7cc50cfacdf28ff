package xds

import (
	"crypto/tls"
	"errors"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// TLS says how to connect with TLS. The other fields need On.
type TLS struct {
	On        bool
	CA        string // file with the CA certificates that verify the server; "" for those of the system
	Cert, Key string // files with the client's certificate; "" for none
	Name      string // the name in the server's certificate; "" for the host of the address
}

// credentials reads the files.
func (t TLS) credentials() (credentials.TransportCredentials, error) {
	switch {
	case !t.On && t != TLS{}:
		return nil, errors.New("--xds-tls-ca, --xds-tls-cert, --xds-tls-key and --xds-tls-name are for --xds-tls; add it, or leave them out")
	case !t.On:
		return insecure.NewCredentials(), nil
	}
	config, err := dialing.Files(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.Name}, "--xds-tls-", t.CA, t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}
