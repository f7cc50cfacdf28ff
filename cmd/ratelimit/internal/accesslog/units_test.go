package accesslog

import "testing"

func TestUnits(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "007": 7, "+5": 5, "1.0": 1, "149.5": 150, "0.0001": 1, ".5": 1, "1.5e3": 1500, "2E2": 200, "9007199254740992": MostUnits, "9.007199254740992e15": MostUnits,
	} {
		if got, err := Units([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": `"" is not a number`, "x": `"x" is not a number`, "1,000": `"1,000" is not a number`, "NaN": `"NaN" is not a number`, "inf": `"inf" is not a number`,
		"0x10": `"0x10" is not a number`, "0x1p4": `"0x1p4" is not a number`, "1_000": `"1_000" is not a number`, "1-2": `"1-2" is not a number`, "12 ": `"12 " is not a number`, "true": `"true" is not a number`,
		"-1": `"-1" is below 0`, "-0.5": `"-0.5" is below 0`, "-1e999": `"-1e999" is below 0`,
		"9007199254740993": `"9007199254740993" is above 9007199254740992`, "99999999999999999999": `"99999999999999999999" is above 9007199254740992`, "1e16": `"1e16" is above 9007199254740992`, "1e999": `"1e999" is above 9007199254740992`,
	} {
		if got, err := Units([]byte(text)); err == nil || err.Error() != want || got != 0 {
			t.Errorf("%s: %d, %v; want %s", text, got, err, want)
		}
	}
}
