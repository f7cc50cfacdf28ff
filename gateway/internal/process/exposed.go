package process

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// adminExposed returns an error if other machines can reach the admin port at host and it has no token. A
// host that is a name is known only once its port is open.
func (o Options) adminExposed(host netip.Addr, port, token string) error {
	if host.Unmap().IsLoopback() || token != "" {
		return nil
	}
	return fmt.Errorf("--admin %s can be reached from other machines, and anyone there could reset limits; give --admin-token-file or RATELIMIT_ADMIN_TOKEN, or write 127.0.0.1:%s", o.Admin, port)
}

// adminHost returns the address in --admin, if it has one: no host stands for all addresses.
func (o Options) adminHost() (host netip.Addr, port string, ok bool) {
	name, port, err := net.SplitHostPort(o.Admin)
	if err != nil || strings.HasPrefix(o.Admin, unixPrefix) {
		return host, "", false
	}
	if name == "" {
		return netip.IPv4Unspecified(), port, true
	}
	host, err = netip.ParseAddr(name)
	return host, port, err == nil
}

// wrongHosts returns an error if an element of --hosts is not the name of a host.
func (o Options) wrongHosts() error {
	for _, name := range o.Hosts {
		if name == "" || strings.ContainsAny(name, "/:*@? \t") {
			return fmt.Errorf("--hosts %q is not the name of a host; write it without a scheme, a port and *, as in ratelimit.internal", name)
		}
	}
	return nil
}

// notices returns what is valid and yet dangerous.
func (o Options) notices() (list []string) {
	for _, text := range o.TrustedProxies {
		if network, err := netip.ParsePrefix(text); err == nil && network.Bits() == 0 {
			list = append(list, fmt.Sprintf("--trusted-proxies %s: every client can choose the address that it is limited by; name only the networks of your proxies", text))
		}
	}
	return list
}
