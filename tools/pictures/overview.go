package main

import "github.com/ratelimit-functions/ratelimit/tools/pictures/diagram"

// A box of a diagram, and the text in it.
type box struct {
	x, y, width, height float64
	class               string
	labels              []diagram.Label
}

// An arrow of a diagram, and the text above it.
type arrow struct {
	x1, y1, x2, y2 float64
	class          string
	label          diagram.Label
}

func bold(text string) diagram.Label  { return diagram.Label{Class: "bold", Text: text} }
func plain(text string) diagram.Label { return diagram.Label{Text: text} }
func small(text string) diagram.Label { return diagram.Label{Class: "small", Text: text} }
func code(text string) diagram.Label  { return diagram.Label{Class: "code", Text: text} }

// A note is a line of text at a place.
type note struct {
	x, y float64
	diagram.Label
}

// overview draws who calls the library, who deploys it, and where it runs.
func overview() (string, error) {
	const (
		width, bottom = 800, 556
		callers       = 326 // right edge of the boxes on the left
		servers       = 440 // left edge of the servers
		primaries     = servers + 14
		replicas      = 674
		shardsFrom    = 64
		shard         = 108 // height of a primary, with the space below it
	)
	boxes := []box{
		{8, 8, callers - 8, 78, "box", []diagram.Label{bold("Programs in any language"), small("a Redis client, and one command:"), code("FCALL ratelimit_take 1 user:42 100/m")}},
		{8, 102, callers - 8, 78, "box", []diagram.Label{bold("Go programs"), small("package client: timeouts, batches,"), small("a breaker, fallbacks")}},
		{8, 196, callers - 8, 56, "box", []diagram.Label{bold("nginx, Caddy, HAProxy, Apache,"), bold("Traefik, Envoy")}},
		{8, 290, callers - 8, 56, "box", []diagram.Label{bold("ratelimit-gateway"), small("also serves programs: JSON over HTTP")}},
		{8, 362, callers - 8, 56, "box", []diagram.Label{code("ratelimit status --watch"), small("loads a lost library again")}},
		{336, 196, 98, 56, "box", []diagram.Label{small("your"), small("application")}},
		{8, 432, callers - 8, bottom - 432, "box", []diagram.Label{bold("CI"), small("policies.yaml and its tests, in git"), code("ratelimit test"), code("ratelimit plan"), code("ratelimit deploy")}},
		{servers, 8, width - 8 - servers, bottom - 8, "frame", []diagram.Label{bold("Redis or Valkey"), small("On a primary, each FCALL is one atomic step.")}},
	}
	arrows := []arrow{
		{callers, 47, servers, 47, "", code("FCALL")},
		{callers, 141, servers, 141, "", code("FCALL")},
		{callers, 318, servers, 318, "", code("FCALL")},
		{callers, 390, servers, 390, "", code("FUNCTION LOAD")},
		{callers, 224, 336, 224, "", plain("")},
		{callers, 528, servers, 528, "", code("FUNCTION LOAD")},
		{167, 252, 167, 290, "", plain("")},
	}
	notes := []note{
		{178, 276, small("HTTP or gRPC")},
		{160, 493, small("needs no server")},
		{160, 513, small("shows changes")},
		{servers + 10, 408, small("One server, Sentinels, or a cluster: each key is")},
		{servers + 10, 428, small("on one primary, with the other keys of its call.")},
		{servers + 10, 466, small("A deployment puts its build on every primary,")},
		{servers + 10, 486, small("or undoes it.")},
	}
	for i := range 3 {
		y := shardsFrom + shard*float64(i)
		boxes = append(boxes,
			box{primaries, y, 168, shard - 14, "box", []diagram.Label{bold("primary"), small("the library,"), small("its policies,"), small("the states of keys")}},
			box{replicas, y, 104, shard - 14, "box", []diagram.Label{bold("replica"), small("a copy that"), small("may lag")}})
		arrows = append(arrows, arrow{primaries + 168, y + 47, replicas, y + 47, "late", plain("")})
	}
	p := diagram.New("Programs call the library on the servers with FCALL: directly, through the Go client, or through the gateway. CI deploys the library and its policies to every primary, and ratelimit status --watch loads a lost library again.", width)
	for _, b := range boxes {
		if err := p.Box(b.x, b.y, b.width, b.height, b.class, b.labels...); err != nil {
			return "", err
		}
	}
	for _, a := range arrows {
		p.Arrow(a.x1, a.y1, a.x2, a.y2, a.class)
		if a.label.Text != "" {
			p.Text((a.x1+a.x2)/2, a.y1-7, a.label.Class+" middle", a.label.Text)
		}
	}
	for _, n := range notes {
		p.Text(n.x, n.y, n.Class, n.Text)
	}
	return p.String(), nil
}
