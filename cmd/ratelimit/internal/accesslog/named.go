package accesslog

import "bytes"

// named lists the usual names of each field in JSON and CSV logs, the most likely first.
var named = map[string][]string{
	"time":   {"time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "msec", "StartUTC", "date"},
	"client": {"client", "client_ip", "remote_addr", "remote_ip", "clientip", "ClientHost", "request.client_ip", "request.remote_ip", "ip"},
	"user":   {"user", "remote_user", "user_id", "ClientUsername"},
	"path":   {"path", "uri", "request_uri", "url", "RequestPath", "request.uri", "request"},
	"method": {"method", "request_method", "RequestMethod", "request.method", "request"},
}

// namesOf returns the names that a field may have in a log: called[field] if it exists, else the
// usual names, else the field itself.
func namesOf(field string, called map[string]string) []string {
	if name, ok := called[field]; ok {
		return []string{name}
	}
	if names, ok := named[field]; ok {
		return names
	}
	return []string{field}
}

// normalized converts the value of a JSON or CSV field to the form that the parser of the Common
// Log Format returns.
func normalized(field string, value []byte) []byte {
	switch field {
	case "path", "method":
		if words := bytes.Count(value, []byte(" ")); words >= 1 && words <= 2 { // a whole request line
			method, path := rest{line: value}.request()
			if field == "method" {
				return method
			}
			return path
		}
		if field == "path" {
			return pathOf(value)
		}
	}
	return orMissing(value)
}
