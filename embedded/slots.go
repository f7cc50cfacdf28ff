package embedded

import (
	"slices"
	"strings"
)

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

func sameSlot(keys []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return keySlot(key) != keySlot(keys[0]) })
}

// keySlot returns the hash slot of a key: the CRC16 (XMODEM) of the key, or of the part between its
// first { and the next }.
func keySlot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if n := strings.IndexByte(key[i+1:], '}'); n > 0 {
			key = key[i+1 : i+1+n]
		}
	}
	var crc uint16
	for i := 0; i < len(key); i++ {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
