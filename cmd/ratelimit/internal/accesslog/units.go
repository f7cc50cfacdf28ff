package accesslog

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MostUnits is the largest number that Units returns, and the maximum cost of a call.
const MostUnits = 1 << 53

// Units parses the value of a field as a number of units, such as bytes or tokens. Fractions are
// rounded up. The error says why the value is not a number from 0 to MostUnits.
func Units(value []byte) (int64, error) {
	text := string(value)
	whole, err := strconv.ParseUint(text, 10, 64)
	if err == nil && whole <= MostUnits {
		return int64(whole), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax) || strings.Trim(text, "0123456789.eE+-") != "": // such as inf or 0x1p3
		return 0, fmt.Errorf("%s is not a number", quoted(value))
	case f < 0:
		return 0, fmt.Errorf("%s is below 0", quoted(value))
	case f > MostUnits || whole > MostUnits: // checks whole too, because as a float64 2^53 + 1 is 2^53
		return 0, fmt.Errorf("%s is above %d", quoted(value), int64(MostUnits))
	}
	return int64(math.Ceil(f)), nil
}
