// Package spelling finds the word that was meant by a misspelled one.
package spelling

// Nearest returns the known word that differs from word in the fewest letters, if it differs in one or
// two. It returns "" if no word does, or if word is so short that it would resemble others by chance.
func Nearest(word string, known []string) (nearest string) {
	const shortest, most = 4, 2
	if len(word) < shortest {
		return ""
	}
	least := min(most, len(word)/4) + 1
	for _, other := range known {
		if n := distance(word, other); n > 0 && n < least {
			nearest, least = other, n
		}
	}
	return nearest
}

// distance returns how many letters must be added, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the first letters of a to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			n := before
			if a[i] != b[j] {
				n = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], n
		}
	}
	return row[len(b)]
}
