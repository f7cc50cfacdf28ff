package combinations

import "maps"

// end checks what remains at the end of a scenario.
func (s *scenario) end() {
	s.spans()
	for i := range s.clients {
		s.afterClosing(i)
	}
}

// afterClosing closes a client that no caller uses.
func (s *scenario) afterClosing(i int) {
	if !s.closed[i] {
		if err := s.clients[i].Close(); err != nil {
			s.broke("Close succeeds", "%v", err)
		}
		s.closed[i] = true
	}
	s.afterClose(i)
}

// afterClose forgets the units of client i, which is closed.
func (s *scenario) afterClose(i int) {
	maps.DeleteFunc(s.pools, func(p pool, _ int64) bool { return p.client == i })
}

// gaveBack checks that Close, which ran during a crowd, gave back the units that nobody spent. Under
// the limits of which it is checked, at most one unit may have refilled.
func (s *scenario) gaveBack(st *step) {
	if st.verb != "take" || st.crowd == 0 || !s.plan.Batches || len(st.keys) != 1 || len(st.faults) > 0 || st.slow == 0 || !s.idle || s.lasted >= ttl {
		return
	}
	if text := st.texts[0]; text != "20/d" && text != "1000/d" && (text != "@big" || s.loaded[0] != 0) {
		return
	}
	full := s.plan.Prefix + st.keys[0]
	back := s.account(s.world.crowd).moved[full] - s.judged[full] // given back since the callers returned
	if left := s.pools[pool{st.client, st.keys[0]}] + back; s.plain && left > 1 {
		s.broke("Close gives back what nobody spent", "%d units of %s stay taken", left, full)
	}
}
