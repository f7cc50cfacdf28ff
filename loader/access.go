package loader

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/shell"
)

// Access is what a user of the servers is for.
type Access string

const (
	// Application asks for decisions: it may call every function of the library, on its keys.
	Application Access = "application"

	// Peeker only looks: it may call the functions that write nothing, with FCALL_RO, on replicas too.
	Peeker Access = "peek"

	// Deployer loads the library, as a [Loader] does. It may touch no key.
	Deployer Access = "deployer"
)

// probe is a command that a Loader sends, in a form that changes nothing, by which to see whether the user may.
type probe []any

// deployerProbes are what the user of a Loader needs on every node; in a cluster, also clusterProbe.
var (
	deployerProbes = []probe{
		{"FUNCTION", "LOAD", "?"}, {"FUNCTION", "LIST", "LIBRARYNAME", recordName}, {"FUNCTION", "DELETE", "?"}, {"FUNCTION", "STATS"},
		{"TIME"}, {"ROLE"}, {"WAIT", 0, 0},
	}
	clusterProbe = probe{"CLUSTER", "SHARDS"}
)

// right is the rule that allows the command: +time, +function|load.
func (p probe) right() string {
	name := fmt.Sprint(p[0])
	if name == "FUNCTION" || name == "CLUSTER" {
		name += "|" + fmt.Sprint(p[1])
	}
	return "+" + strings.ToLower(name)
}

// deployerRights are the rules for the user of a Loader.
func deployerRights(cluster bool) []string {
	var rights []string
	for _, p := range deployerProbes {
		rights = append(rights, p.right())
	}
	if cluster {
		rights = append(rights, clusterProbe.right())
	}
	return rights
}

// grant is the command line that gives rights to our user.
func (c *conn) grant(rights []string) string {
	words := []string{"redis-cli", "-s", c.address()}
	if host, port, err := net.SplitHostPort(c.address()); err == nil {
		words = []string{"redis-cli", "-h", host, "-p", port}
	}
	if c.tls != nil {
		words = append(words, "--tls")
	}
	return shell.Line(append(append(words, "ACL", "SETUSER", c.userName()), rights...)...)
}

// readers are the commands that write nothing, of those that the library calls. A command that is not here is taken for one that writes.
var readers = map[string]bool{
	"exists": true, "get": true, "getrange": true, "hexists": true, "hget": true, "hgetall": true, "hkeys": true, "hlen": true,
	"hmget": true, "hvals": true, "mget": true, "pexpiretime": true, "pttl": true, "strlen": true, "time": true, "ttl": true,
	"type": true, "zcard": true, "zcount": true, "zrange": true, "zrank": true, "zscore": true, "zmscore": true,
}

var (
	innerCall = regexp.MustCompile(`\bredis\.p?call\(\s*['"](\w+)['"]`)
	noWrites  = regexp.MustCompile(`\bflags\s*=\s*\{[^}]*['"]no-writes['"]`)
)

// Rules returns what ACL SETUSER needs to be given, after the user's name and password, for a user who can do what
// access says and nothing else: the functions that build registers, and the commands that these call, since a server
// checks each of them against the calling user. The rules work on Redis 7.0 and later and on Valkey.
//
// keys is the prefix of all keys that the user may name, as in "rl:"; "" allows every key. It does not matter for a
// Deployer. With cluster, the rules include what clients of a Redis Cluster need to find the nodes.
func Rules(build Build, access Access, keys string, cluster bool) ([]string, error) {
	if build == nil || build.Text() == "" {
		return nil, fmt.Errorf("loader.Rules: the build is empty; make one with functions.New")
	}
	if i := strings.IndexFunc(keys, func(r rune) bool { return r <= ' ' || r == 0x7f }); i >= 0 {
		return nil, fmt.Errorf("loader.Rules: the key prefix %q holds a space or a control character, which no rule can hold; choose another", keys)
	}
	pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(keys) + "*"
	rules := []string{"reset"}
	switch access {
	case Application:
		rules = append(rules, "~"+pattern, "+ping")
	case Peeker:
		rules = append(rules, "%R~"+pattern, "+ping")
	case Deployer:
		return append(append(rules, "+ping"), deployerRights(cluster)...), nil
	default:
		return nil, fmt.Errorf("loader.Rules: there is no access %q; choose %s, %s or %s", access, Application, Peeker, Deployer)
	}
	if cluster {
		rules = append(rules, "+cluster|slots", "+cluster|shards", "+command", "+asking", "+readonly", "+readwrite")
	}
	registered := bodies(build.Text())
	for _, function := range functionsOf(build.Text()) {
		if access == Application {
			rules = append(rules, "+fcall|"+function)
		}
		if noWrites.MatchString(registered[function]) {
			rules = append(rules, "+fcall_ro|"+function)
		}
	}
	for _, command := range callsOf(build.Text()) {
		if access == Application || readers[command] {
			rules = append(rules, "+"+command)
		}
	}
	return rules, nil
}

// callsOf lists the commands that a library text calls, in lower case.
func callsOf(code string) []string {
	var names []string
	for _, m := range innerCall.FindAllStringSubmatch(code, -1) {
		names = append(names, strings.ToLower(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
