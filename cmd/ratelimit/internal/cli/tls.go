package cli

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

func (a *app) tlsFiles(o *redis.Options) error {
	f := a.servers
	if f.caFile == "" && f.certFile == "" && f.keyFile == "" {
		return nil
	}
	if o.TLSConfig == nil {
		return errors.New("--tls-ca, --tls-cert and --tls-key need a URL with TLS; write rediss:// in place of redis://, or rediss-sentinel:// in place of redis-sentinel://")
	}
	config, err := dialing.Files(o.TLSConfig, "--tls-", f.caFile, f.certFile, f.keyFile)
	if err != nil {
		return err
	}
	o.TLSConfig = config
	return nil
}
