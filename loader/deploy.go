package loader

import (
	"context"
	"errors"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// Deploy makes every primary run build. It looks at all of them first and writes nothing if one of them cannot take the
// library. Then it loads the build, with FUNCTION LOAD REPLACE, where something else or nothing is running, reads
// back what each node holds, and compares. Loading is atomic on each node, and calls are served throughout: the old
// library until then, the new one after.
//
// The Report is complete also when there is an error, which is then a [*PartialError] that tells what was done and what
// failed; calling Deploy again finishes what is left. Two Deploys of different builds at the same time are not kept
// apart: what a node holds at the end is the last build that it was given.
func (l *Loader) Deploy(ctx context.Context, build functions.Build) (Report, error) {
	if build.Text() == "" {
		return Report{}, errors.New("loader.Deploy: the build is empty; make one with functions.New")
	}
	report, conns := l.look(ctx, build)
	defer closeAll(conns)
	for i, c := range conns {
		node := &report.Nodes[i]
		if node.Err == nil && node.Role == Replica {
			node.Err = readOnly(c, c.primaryOf(ctx), nil)
		}
	}
	if err := newPartialError(opDeploy, report); err != nil {
		return report, err
	}
	each(conns, func(i int, c *conn) {
		if node := &report.Nodes[i]; node.State != Same {
			c.load(ctx, node, build)
		}
	})
	return report, newPartialError(opDeploy, report)
}

// load loads build on one node and reads it back.
func (c *conn) load(ctx context.Context, node *Node, build functions.Build) {
	_, err := c.do(ctx, "FUNCTION", "LOAD", "REPLACE", build.Text())
	if err != nil {
		err = c.loadFailure(ctx, err)
	}
	// Also after an error: if only the reply was lost, the node runs the build; and if not, the report says what it runs.
	if readErr := c.readLibrary(ctx, node, build); readErr != nil {
		node.State, node.Running = stateAfter(readErr), Library{}
		node.Changed = err == nil
		node.Err = err
		if err == nil {
			node.Err = readErr
		}
		return
	}
	var refused *NodeError
	switch {
	case node.State == Same && (err == nil || !errors.As(err, &refused) || refused.Code == ""):
		node.Changed = true
	case err == nil:
		node.Err = overwritten(c)
	default:
		node.Err = err
	}
}

// loadFailure explains why a load was refused, where it takes another question to know.
func (c *conn) loadFailure(ctx context.Context, err error) error {
	switch {
	case isCode(err, "READONLY"):
		return readOnly(c, c.primaryOf(ctx), err)
	case isReply(err, "ERR Function ") && strings.HasSuffix(replyText(err), " already exists"):
		function := strings.TrimSuffix(strings.TrimPrefix(replyText(err), "ERR Function "), " already exists")
		return nameTaken(c, function, c.holderOf(ctx, function), err)
	case isReply(err, "ERR Error "), isReply(err, "ERR FUNCTION LOAD timeout"):
		return refusedText(c, err)
	}
	return failure(c, "FUNCTION LOAD", err)
}
