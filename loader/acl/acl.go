// Package acl returns the rules for the users of servers with the ratelimit library: what an
// application, an operator, or a program that deploys may do.
package acl

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Access names a set of permissions for a user of the servers; see [Rules].
type Access string

const (
	// Application is for programs that make decisions. It allows every function of the library, on
	// the user's keys, except those that only an Operator needs.
	Application Access = "application"

	// Operator is for people who block and override keys and reset them, and for the programs that
	// do so for them. It allows the functions for this and those that write nothing, and the
	// commands with which the command line lists keys.
	Operator Access = "operator"

	// Peeker is for programs that only read. It allows the functions that write nothing, through
	// FCALL_RO, on primaries and replicas.
	Peeker Access = "peek"

	// Deployer is for programs that load the library, as a loader.Loader does. It allows no keys.
	Deployer Access = "deployer"

	// Planner is for programs that show what a deployment would change, such as a check of pull
	// requests. It allows no keys, and to load nothing.
	Planner Access = "planner"
)

// deployer lists the rights that a Deployer needs on every node. In a cluster, the user also needs
// shards.
var deployer = []string{"+function|load", "+function|list", "+function|delete", "+function|stats", "+time", "+role", "+wait"}

const shards = "+cluster|shards"

// planner lists the rights that the methods Plan and Status of a Loader need.
var planner = []string{"+function|list", "+function|stats", "+role"}

// DeployerRights returns the rights of a Deployer, without +ping.
func DeployerRights(cluster bool) []string { return rights(deployer, cluster) }

func rights(list []string, cluster bool) []string {
	if cluster {
		return append(slices.Clone(list), shards)
	}
	return slices.Clone(list)
}

// operations lists the functions that an Operator needs and an Application does not.
var operations = []string{"block", "unblock", "override", "override_end", "reset"}

// listing lists the commands with which the command line lists overrides, and counts keys with
// TRACK.
var listing = []string{"dbsize", "getrange", "hmget", "scan", "time", "type", "zrange", "zscore"}

// readers lists commands that write nothing. A command that the library calls and that is not
// listed counts as a write.
var readers = map[string]bool{
	"exists": true, "get": true, "getrange": true, "hexists": true, "hget": true, "hgetall": true, "hkeys": true, "hlen": true,
	"hmget": true, "hvals": true, "mget": true, "pexpiretime": true, "pttl": true, "strlen": true, "time": true, "ttl": true,
	"type": true, "zcard": true, "zcount": true, "zrange": true, "zrank": true, "zscore": true, "zmscore": true,
}

var (
	innerCall = regexp.MustCompile(`\bredis\.p?call\(\s*['"](\w+)['"]`)
	noWrites  = regexp.MustCompile(`\bflags\s*=\s*\{[^}]*['"]no-writes['"]`)
)

// Rules returns the arguments of ACL SETUSER, after the user's name and password, for a user who
// may do only what access allows. The user may call the functions that library, the source code of a build, registers. The user
// may also call the commands that these functions call, because a server checks the calling user's
// permission to run them. The rules work on Redis 7.0 and later and on Valkey.
//
// keys is the prefix of all keys that the user may access, such as "rl:"; "" allows every key. keys
// is ignored for a Deployer. If cluster is true, the rules include what clients of a Redis Cluster
// need to find the nodes.
func Rules(library string, access Access, keys string, cluster bool) ([]string, error) {
	if library == "" {
		return nil, errors.New("acl.Rules: the library is empty; make one with functions.New")
	}
	if i := strings.IndexFunc(keys, func(r rune) bool { return r <= ' ' || r == 0x7f }); i >= 0 {
		return nil, fmt.Errorf("the key prefix %q contains a space or a control character, which no ACL rule can contain; choose another", keys)
	}
	pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(keys) + "*"
	rules := []string{"reset"}
	switch access {
	case Application, Operator:
		rules = append(rules, "~"+pattern, "+ping")
	case Peeker:
		rules = append(rules, "%R~"+pattern, "+ping")
	case Deployer:
		return append(append(rules, "+ping"), DeployerRights(cluster)...), nil
	case Planner:
		return append(append(rules, "+ping"), rights(planner, cluster)...), nil
	default:
		return nil, fmt.Errorf("the access %q is not %s, %s, %s, %s or %s", access, Application, Operator, Peeker, Deployer, Planner)
	}
	if cluster {
		rules = append(rules, "+cluster|slots", "+cluster|shards", "+command", "+asking", "+readonly", "+readwrite")
	}
	registered := text.Bodies(library)
	for _, function := range text.Functions(library) {
		reads := noWrites.MatchString(registered[function])
		operates := slices.Contains(operations, strings.TrimPrefix(function, functions.Name+"_"))
		if access == Application && !operates || access == Operator && (operates || reads) {
			rules = append(rules, "+fcall|"+function)
		}
		if reads {
			rules = append(rules, "+fcall_ro|"+function)
		}
	}
	var commands []string // that the library calls, in lower case
	for _, m := range innerCall.FindAllStringSubmatch(library, -1) {
		commands = append(commands, strings.ToLower(m[1]))
	}
	if access == Operator {
		commands = append(commands, listing...)
	}
	slices.Sort(commands)
	for _, command := range slices.Compact(commands) {
		if access != Peeker || readers[command] {
			rules = append(rules, "+"+command)
		}
	}
	return rules, nil
}
