package integration

// seenID is the number as which a program sees itself where the policy does not say: root's is nobody special.
func seenID() int {
	const plain = 1000
	if w.uid == 0 {
		return plain
	}
	return w.uid
}
