package ids

// ValidTopic says whether a name may be a topic's: 1 to 249 letters, digits, '.', '_' and '-' of ASCII, not "." or "..".
func ValidTopic(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > 249 {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
