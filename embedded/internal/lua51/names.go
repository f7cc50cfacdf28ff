package lua51

import (
	"reflect"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51/syntax"
	lua "github.com/yuin/gopher-lua"
)

// PUC's messages name the variable that holds a wrong value, which it finds by
// looking at the code around the failing instruction (ldebug.c). This does the
// same over gopher-lua's code, which is close to PUC's.

// instruction is one decoded instruction.
type instruction struct{ op, a, b, c, bx int }

func decode(code uint32) instruction {
	return instruction{
		op: int(code >> 26), a: int(code>>18) & 0xff, c: int(code>>9) & 0x1ff, b: int(code & 0x1ff), bx: int(code & 0x3ffff),
	}
}

const (
	constantBit = 1 << 8 // an operand that is a constant, not a register
	jumpOffset  = 1<<17 - 1
)

// site is the instruction that a Lua function is at.
type site struct {
	fn     *lua.LFunction
	pc     int
	locals []syntax.Local
}

// callSite finds the Lua function at a level of the stack, and where it is.
// The program counter is not part of gopher-lua's interface; it is read by
// reflection, and without it messages merely lack the names.
func callSite(L *lua.LState, level int) (site, bool) {
	dbg, ok := L.GetStack(level)
	if !ok {
		return site{}, false
	}
	v, err := L.GetInfo("f", dbg, lua.LNil)
	fn, isFn := v.(*lua.LFunction)
	if err != nil || !isFn || fn.IsG {
		return site{}, false
	}
	frame := reflect.ValueOf(dbg).Elem().FieldByName("frame")
	if frame.Kind() != reflect.Pointer || frame.IsNil() {
		return site{}, false
	}
	pc := frame.Elem().FieldByName("Pc")
	if !pc.CanInt() {
		return site{}, false
	}
	at := int(pc.Int()) - 1
	if at < 0 || at >= len(fn.Proto.Code) {
		return site{}, false
	}
	s := site{fn: fn, pc: at}
	if c, ok := L.Context().(interface{ shared() *budget }); ok {
		s.locals = c.shared().locals[fn.Proto]
	}
	return s, true
}

// noteLocals keeps which registers the locals of a function and of those within
// it are in, where gopher-lua's list of locals is the same.
func (rt *Runtime) noteLocals(p *lua.FunctionProto, info *syntax.Function) {
	same := !info.Shifted && len(p.DbgLocals) == len(info.Locals)
	for i := 0; same && i < len(info.Locals); i++ {
		same = p.DbgLocals[i].Name == info.Locals[i].Name
	}
	if same {
		rt.budget.locals[p] = info.Locals
	}
	if len(p.FunctionPrototypes) == len(info.Inner) {
		for i, inner := range info.Inner {
			rt.noteLocals(p.FunctionPrototypes[i], inner)
		}
	}
}

// local is the variable in a register: the last one there to have begun. Where
// blocks end is only known by the line.
func (s site) local(reg int) (string, bool) {
	name, found := "", false
	line := s.fn.Proto.DbgSourcePositions[s.pc]
	for i, l := range s.locals {
		if s.fn.Proto.DbgLocals[i].StartPc > s.pc {
			break
		}
		switch {
		case l.Register == reg:
			name, found = l.Name, l.LastLine == 0 || line <= l.LastLine
		case l.Register < reg:
			found = false // a later block has begun below
		}
	}
	return name, found && name[0] != '('
}

func (s site) instruction() instruction { return decode(s.fn.Proto.Code[s.pc]) }

// object names what is in a register at the site: its kind ("local",
// "global", "field", "method", "upvalue") and its name.
func (s site) object(reg int) (kind, name string, ok bool) {
	if name, ok := s.local(reg); ok {
		return "local", name, true
	}
	p := s.fn.Proto
	at := s.setter(reg)
	if at < 0 {
		return "", "", false
	}
	switch in := decode(p.Code[at]); in.op {
	case lua.OP_MOVE, lua.OP_MOVEN:
		if in.b < in.a {
			return site{s.fn, at, s.locals}.object(in.b)
		}
	case lua.OP_GETGLOBAL:
		return "global", constantName(p, in.bx), true
	case lua.OP_GETUPVAL:
		if in.b < len(p.DbgUpvalues) {
			return "upvalue", p.DbgUpvalues[in.b], true
		}
	case lua.OP_GETTABLE, lua.OP_GETTABLEKS:
		return "field", operandName(p, in.c), true
	case lua.OP_SELF:
		return "method", operandName(p, in.c), true
	}
	return "", "", false
}

func operandName(p *lua.FunctionProto, operand int) string {
	if operand&constantBit == 0 {
		return "?"
	}
	return constantName(p, operand&^constantBit)
}

func constantName(p *lua.FunctionProto, i int) string {
	if i < len(p.Constants) {
		if s, ok := p.Constants[i].(lua.LString); ok {
			return string(s)
		}
	}
	return "?"
}

// setter finds the instruction that last set a register before the site,
// following forward jumps as PUC 5.1 does; -1 if there is none.
func (s site) setter(reg int) int {
	p := s.fn.Proto
	last := -1
	for pc := 0; pc < s.pc; pc++ {
		in := decode(p.Code[pc])
		set := false
		switch in.op {
		case lua.OP_LOADNIL:
			set = in.a <= reg && reg <= in.b
		case lua.OP_TFORLOOP:
			set = reg >= in.a+3
		case lua.OP_CALL, lua.OP_TAILCALL, lua.OP_VARARG:
			set = reg >= in.a
		case lua.OP_SELF:
			set = reg == in.a || reg == in.a+1
		case lua.OP_FORLOOP, lua.OP_FORPREP:
			set = in.a <= reg && reg <= in.a+3
		case lua.OP_JMP:
			if dest := pc + 1 + in.bx - jumpOffset; pc < dest && dest <= s.pc {
				pc = dest - 1
			}
		case lua.OP_CLOSURE:
			set = reg == in.a
			if set {
				last = pc
			}
			pc += int(p.FunctionPrototypes[in.bx].NumUpvalues)
			continue
		case lua.OP_SETGLOBAL, lua.OP_SETUPVAL, lua.OP_SETTABLE, lua.OP_SETTABLEKS, lua.OP_EQ, lua.OP_LT, lua.OP_LE,
			lua.OP_TEST, lua.OP_RETURN, lua.OP_SETLIST, lua.OP_CLOSE, lua.OP_NOP:
		default:
			set = reg == in.a
		}
		if set {
			last = pc
		}
	}
	return last
}

// calledName is the name under which the running Go function was called, and
// whether as a method; "?" if it has none.
func calledName(L *lua.LState) (name string, method bool) {
	s, ok := callSite(L, 1)
	if !ok {
		return "?", false
	}
	in := s.instruction()
	if in.op != lua.OP_CALL && in.op != lua.OP_TAILCALL {
		return "?", false
	}
	kind, name, ok := s.object(in.a)
	if !ok {
		return "?", false
	}
	return name, kind == "method"
}

// describe is the end of a message about a wrong value: "local 'x' (a nil
// value)", or "a nil value" if the value has no name. operand is the position
// of the value among those of the instruction that failed: 1 or 2.
func describe(L *lua.LState, v lua.LValue, operand int) string {
	plain := "a " + v.Type().String() + " value"
	s, ok := callSite(L, 1)
	if !ok {
		return plain
	}
	reg, ok := s.operand(operand)
	if !ok {
		return plain
	}
	kind, name, ok := s.object(reg)
	if !ok {
		return plain
	}
	return kind + " '" + name + "' (" + plain + ")"
}

// operand gives the register of an operand of the failing instruction. The
// operators that are calls of helpers have theirs behind the function.
func (s site) operand(n int) (reg int, ok bool) {
	in := s.instruction()
	switch in.op {
	case lua.OP_CALL, lua.OP_TAILCALL:
		if kind, name, ok := s.object(in.a); ok && kind == "upvalue" && name[0] == '(' {
			return in.a + n, true
		}
		return in.a, true
	case lua.OP_SETTABLE, lua.OP_SETTABLEKS:
		reg = in.a
	case lua.OP_GETTABLE, lua.OP_GETTABLEKS, lua.OP_SELF, lua.OP_LEN, lua.OP_UNM:
		reg = in.b
	case lua.OP_ADD, lua.OP_SUB, lua.OP_MUL, lua.OP_DIV, lua.OP_MOD, lua.OP_POW:
		if reg = in.b; n == 2 {
			reg = in.c
		}
	default:
		return 0, false
	}
	return reg, reg&constantBit == 0
}
