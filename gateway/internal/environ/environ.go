// Package environ translates the environment variables of the container of envoyproxy/ratelimit into
// flags of the gateway. docs/swap.md describes them.
package environ

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Flag is a flag of the gateway with the value that the variables give it.
type Flag struct {
	Name, Value string
	From        []string // names of the variables; none for a default of envoyproxy/ratelimit
	Secret      bool     // the value may contain a password
}

// Note says why a variable that is set has no effect.
type Note struct{ Name, Why string }

// Settings are what the variables say.
type Settings struct {
	Flags []Flag
	Notes []Note
}

// marks are variables that only a deployment of envoyproxy/ratelimit has. Others, such as PORT, have
// names that many programs use.
var marks = []string{"REDIS_SOCKET_TYPE", "CONFIG_TYPE", "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "CONFIG_GRPC_XDS_SERVER_URL", "CONFIG_GRPC_XDS_NODE_ID"}

// Read returns the settings of the variables in environment, which has the form of os.Environ. It
// returns nil if they are not those of a deployment of envoyproxy/ratelimit. The error names each
// variable whose meaning the gateway does not have, and what to do.
func Read(environment []string) (*Settings, error) {
	r := newReader(environment)
	if !r.deployment() {
		return nil, nil
	}
	r.ports()
	r.redis()
	r.rules()
	r.others()
	if len(r.wrong) > 0 {
		for _, n := range Misspelled(environment) { // perhaps the cause
			r.wrong = append(r.wrong, fmt.Errorf("%s: %s", n.Name, n.Why))
		}
		return nil, errors.Join(r.wrong...)
	}
	slices.SortFunc(r.Notes, func(a, b Note) int { return strings.Compare(a.Name, b.Name) })
	return &r.Settings, nil
}

type reader struct {
	Settings
	vars  map[string]string
	wrong []error
}

func newReader(environment []string) *reader {
	r := &reader{vars: map[string]string{}}
	for _, text := range environment {
		name, value, _ := strings.Cut(text, "=")
		r.vars[name] = value // "" is the same as not set
	}
	return r
}

// deployment reports whether the variables are those of a deployment of envoyproxy/ratelimit.
func (r *reader) deployment() bool {
	return slices.ContainsFunc(marks, func(name string) bool { return r.vars[name] != "" })
}

// flag sets a flag from those of the variables that are set.
func (r *reader) flag(name, value string, from ...string) {
	from = slices.DeleteFunc(from, func(name string) bool { return r.vars[name] == "" })
	r.Flags = append(r.Flags, Flag{Name: name, Value: value, From: from})
}

// get returns a variable, or its default in envoyproxy/ratelimit.
func (r *reader) get(name, standard string) string {
	return cmp.Or(r.vars[name], standard)
}

// on returns a variable that is true or false.
func (r *reader) on(name string) bool {
	text := r.get(name, "false")
	yes, err := strconv.ParseBool(text)
	if err != nil {
		r.refuse(name, "write true or false")
	}
	return yes
}

// port returns a variable that is the number of a port.
func (r *reader) port(name, standard string) string {
	text := r.get(name, standard)
	if _, err := strconv.ParseUint(text, 10, 16); err != nil {
		r.refuse(name, "write a number from 0 to 65535, such as "+standard)
	}
	return text
}

func (r *reader) refuse(name, remedy string) {
	r.wrong = append(r.wrong, fmt.Errorf("%s=%s: %s", name, r.vars[name], remedy))
}

// note notes a variable without effect, if it is set.
func (r *reader) note(why string, names ...string) {
	for _, name := range names {
		if r.vars[name] != "" {
			r.Notes = append(r.Notes, Note{name, why})
		}
	}
}

func (r *reader) ports() {
	r.flag("http", net.JoinHostPort(r.get("HOST", "0.0.0.0"), r.port("PORT", "8080")), "HOST", "PORT")
	if socket := r.vars["GRPC_UDS"]; socket != "" {
		r.flag("grpc", "unix:"+socket, "GRPC_UDS")
	} else {
		r.flag("grpc", net.JoinHostPort(r.get("GRPC_HOST", "0.0.0.0"), r.port("GRPC_PORT", "8081")), "GRPC_HOST", "GRPC_PORT")
	}
	files := []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT"}
	if !r.on("GRPC_SERVER_USE_TLS") {
		r.note("GRPC_SERVER_USE_TLS is not true", files...)
		return
	}
	r.flag("tls-grpc-only", "true", "GRPC_SERVER_USE_TLS")
	for i, name := range []string{"tls-cert", "tls-key", "tls-client-ca"} {
		if file := r.vars[files[i]]; file != "" {
			r.flag(name, file, files[i])
		}
	}
	if r.vars["GRPC_CLIENT_TLS_SAN"] != "" {
		r.refuse("GRPC_CLIENT_TLS_SAN", "the gateway accepts each certificate of GRPC_CLIENT_TLS_CACERT; give it an authority of its own, and remove the variable")
	}
}

// redis makes a URL of the servers.
func (r *reader) redis() {
	at := r.vars["REDIS_URL"]
	if at == "" {
		r.wrong = append(r.wrong, errors.New("REDIS_URL is not set; give the address of Redis, such as redis:6379"))
		return
	}
	scheme := "redis"
	if r.on("REDIS_TLS") {
		scheme = "rediss"
	}
	user := ""
	if auth := r.vars["REDIS_AUTH"]; auth != "" {
		name, password, both := strings.Cut(auth, ":")
		if !both {
			name, password = "", auth
		}
		user = url.UserPassword(name, password).String() + "@"
	}
	kind, socket := strings.ToUpper(r.get("REDIS_TYPE", "SINGLE")), r.get("REDIS_SOCKET_TYPE", "unix")
	switch {
	case strings.Contains(at, "://"): // a whole URL
		if user != "" {
			r.wrong = append(r.wrong, errors.New("REDIS_AUTH is set, and REDIS_URL is a whole URL; write the password into the URL, or give only host:port"))
		}
		if kind != "SINGLE" {
			r.refuse("REDIS_TYPE", "write redis+cluster:// or redis-sentinel:// in REDIS_URL, or give only host:port")
		}
		secure := scheme
		if scheme, at, _ = strings.Cut(at, "://"); scheme == "redis" {
			scheme = secure // REDIS_TLS holds for a URL, too
		}
	case socket != "tcp" && socket != "unix":
		r.refuse("REDIS_SOCKET_TYPE", "write tcp or unix")
	case kind == "SINGLE" && socket == "unix":
		if r.on("REDIS_TLS") {
			r.refuse("REDIS_TLS", "leave it out for a socket, or set REDIS_SOCKET_TYPE to tcp")
		}
		if _, port, err := net.SplitHostPort(at); err == nil && !strings.Contains(at, "/") {
			if _, err := strconv.ParseUint(port, 10, 16); err == nil {
				r.refuse("REDIS_URL", "this is the path of a socket unless REDIS_SOCKET_TYPE is tcp; set REDIS_SOCKET_TYPE=tcp, or write a path such as /run/redis.sock")
			}
		}
		scheme = "unix"
	case kind == "CLUSTER":
		scheme += "+cluster"
	case kind == "SENTINEL":
		name, hosts, ok := strings.Cut(at, ",")
		if !ok {
			r.wrong = append(r.wrong, errors.New("REDIS_URL has no comma, and REDIS_TYPE is SENTINEL; write the primary's name and the Sentinels, as in mymaster,s1:26379,s2:26379"))
		}
		scheme += "-sentinel"
		at = hosts + "/" + url.PathEscape(name)
		if password := r.vars["REDIS_SENTINEL_AUTH"]; password != "" {
			at += "?sentinel_password=" + url.QueryEscape(password)
		}
	case kind != "SINGLE":
		r.refuse("REDIS_TYPE", "write SINGLE, SENTINEL or CLUSTER")
	}
	r.flag("redis", scheme+"://"+user+at, "REDIS_URL", "REDIS_AUTH", "REDIS_TLS", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_SENTINEL_AUTH")
	r.Flags[len(r.Flags)-1].Secret = true
	for _, file := range [][2]string{{"redis-tls-ca", "REDIS_TLS_CACERT"}, {"redis-tls-cert", "REDIS_TLS_CLIENT_CERT"}, {"redis-tls-key", "REDIS_TLS_CLIENT_KEY"}} {
		switch value := r.vars[file[1]]; {
		case value == "":
		case strings.HasPrefix(scheme, "rediss"):
			r.flag(file[0], value, file[1])
		default:
			r.note("REDIS_TLS is not true", file[1])
		}
	}
	r.flag("deploy", "true") // Redis needs nothing for envoyproxy/ratelimit, and the library for the gateway
}

// rules names the source of the rules.
func (r *reader) rules() {
	files := []string{"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"}
	const prefix = "CONFIG_GRPC_XDS_"
	set := slices.DeleteFunc(slices.Sorted(maps.Keys(r.vars)), func(name string) bool {
		return !strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, "XDS_CLIENT_")
	})
	switch kind := strings.ToUpper(r.get("CONFIG_TYPE", "FILE")); kind {
	case "FILE":
		r.note("CONFIG_TYPE is FILE", set...)
		r.note("the files are read at the start, and must be right", "FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")
		r.flag("envoy-config", path.Join(r.get(files[0], "/srv/runtime_data/current"), r.vars[files[1]], r.get(files[2], "config")), files...)
	case "GRPC_XDS_SOTW":
		r.note("the rules come over xDS", files...)
		r.xds(prefix)
	default:
		r.refuse("CONFIG_TYPE", "write FILE or GRPC_XDS_SOTW")
	}
	r.note("files whose names begin with a dot are never read", "RUNTIME_IGNOREDOTFILES")
	r.note("the gateway looks for changed files once a second", "RUNTIME_WATCH_ROOT")
}

func (r *reader) xds(prefix string) {
	r.flag("xds", r.get(prefix+"SERVER_URL", "localhost:18000"), prefix+"SERVER_URL", "CONFIG_TYPE")
	r.flag("xds-node", r.get(prefix+"NODE_ID", "default"), prefix+"NODE_ID")
	files := map[string]string{"SERVER_TLS_CACERT": "xds-tls-ca", "CLIENT_TLS_CERT": "xds-tls-cert", "CLIENT_TLS_KEY": "xds-tls-key", "SERVER_TLS_SAN": "xds-tls-name"}
	secure := r.on(prefix + "SERVER_USE_TLS")
	if secure {
		r.flag("xds-tls", "true", prefix+"SERVER_USE_TLS")
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch value := r.vars[prefix+name]; {
		case value == "":
		case secure:
			r.flag(files[name], value, prefix+name)
		default:
			r.note(prefix+"SERVER_USE_TLS is not true", prefix+name)
		}
	}
	if force, healthy := r.on("FORCE_START_WITHOUT_INITIAL_CONFIG"), r.on("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"); force && !healthy {
		r.flag("xds-optional", "true", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	}
	for _, name := range []string{prefix + "NODE_METADATA", prefix + "CLIENT_ADDITIONAL_HEADERS"} { // which may be secret
		if r.vars[name] != "" {
			r.wrong = append(r.wrong, fmt.Errorf("%s is set, and the gateway sends only its node's ID; give the xDS server resources by the ID, and remove the variable", name))
		}
	}
	r.note("the gateway connects again after 1s to 30s", prefix+"SERVER_CONNECT_RETRY_INTERVAL", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
		"XDS_CLIENT_BACKOFF_MAX_INTERVAL", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "XDS_CLIENT_BACKOFF_JITTER")
	r.note("an answer may have 64 MiB", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")
}
