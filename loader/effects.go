package loader

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// tryChanges determines how the build affects keys in use, for each library that it would replace,
// and stores the result in f.s.effects.
func (f *fleet) tryChanges() {
	if !f.want.IsOurs() {
		return
	}
	for _, m := range f.members {
		key := [2]string{m.node.Running.Digest, f.want.Digest}
		if m.node.Err != nil || m.node.State != Different && m.node.State != Absent || f.s.effects[key] != nil {
			continue
		}
		f.s.effects[key] = f.effects(text.Body(m.source))
	}
}

// effects returns the effects of the build, by policy name. before is the library that the build
// would replace.
func (f *fleet) effects(before string) map[string]functions.Effect {
	found := map[string]functions.Effect{}
	had := map[string]functions.Policy{}
	list, _ := functions.ReadPolicies(before)
	for _, p := range list {
		had[p.Name] = p
	}
	list, _ = functions.ReadPolicies(f.want.text)
	// The caller's build has checked its own policies with its own code. Others may meet this code for
	// the first time, because the text is composed of parts that were deployed one by one.
	foreign, newCode := !sameCode(f.want.text, f.goal.own.text), !sameCode(f.want.text, before)
	var changes [][2]functions.Policy
	for _, p := range list {
		old, known := had[p.Name]
		changed := known && !reflect.DeepEqual(old, p)
		meets := p.Namespace() != "" && (!known || newCode)
		switch {
		case changed:
			changes = append(changes, [2]functions.Policy{old, p})
		case meets && (foreign || p.Namespace() != f.s.l.config.Namespace):
			changes = append(changes, [2]functions.Policy{{}, p})
		}
	}
	if len(changes) == 0 {
		return found
	}
	code, err := functions.Rebuild(f.want.text, nil)
	var effects []functions.Effect
	if err == nil {
		effects, err = f.s.l.config.effects(code, changes)
	}
	for i, change := range changes {
		switch name := change[1].Name; {
		case err != nil:
			found[name] = functions.Effect{Keys: "unknown: " + strings.TrimPrefix(err.Error(), "functions: ")}
		case len(change[0].Limits) == 0: // no key is in use that the change could deny
			found[name] = functions.Effect{Refused: effects[i].Refused}
		default:
			found[name] = effects[i]
		}
	}
	return found
}

// sameCode reports whether two libraries differ at most in their policies.
func sameCode(a, b string) bool {
	a, errA := functions.Rebuild(a, nil)
	b, errB := functions.Rebuild(b, nil)
	return errA == nil && errB == nil && a == b
}

// effectsOn returns the effects of the build on a node, by policy name.
func (f *fleet) effectsOn(m *member) map[string]functions.Effect {
	return f.s.effects[[2]string{m.node.Running.Digest, f.want.Digest}]
}

// misfit returns an error if the code of the build does not take one of its policies, or nil. The two
// may be parts of different deployments.
func (f *fleet) misfit(m *member) error {
	effects := f.effectsOn(m)
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		if refused := effects[name].Refused; refused != "" && m.node.State != Same {
			return m.Fail("FUNCTION LOAD", ErrRefused, nil, "write the limit as that version takes it", "would get version %s of the library, which does not take the policy %s: %s",
				f.want.Version, name, refused)
		}
	}
	return nil
}

// refusedEffect returns an error if the build must not be loaded on a node because of its effects,
// or nil.
func (f *fleet) refusedEffect(m *member, o Options) error {
	if m.node.State == Same {
		return nil
	}
	if err := f.misfit(m); err != nil {
		return err
	}
	var names []string
	effects := f.effectsOn(m)
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		if effects[name].Denied && !o.DenyKeysInUse && !f.explained(functions.Policy{Name: name}.Namespace()) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	const most = 3
	var texts []string
	for _, name := range names[:min(most, len(names))] {
		texts = append(texts, name+" ("+effects[name].Keys+")")
	}
	text := strings.Join(texts, ", ")
	if len(names) > most {
		text += ", ..."
	}
	e := m.Fail("FUNCTION LIST", ErrDeniesKeys, nil, "give callers another policy or another key for the new limit first, or set Options.DenyKeysInUse",
		"has keys in use whose calls this build would deny, although they have units left: %s", text)
	e.Policies = names
	return e
}
