package policy

// Flag is an addition to a policy on the command line. It has the meaning and the rules of the policy's key; relative paths are
// relative to Input.Cwd. Flags come last: lists append, other keys override.
type Flag struct {
	Name  string // one of FlagNames, without dashes
	Value string
}

// flagMark begins the name of a flag in a place, which otherwise has the name of a file.
const flagMark = "--"

// Input is a policy file and everything that its meaning depends on. Load reads nothing else.
type Input struct {
	Name string // of the file, for messages; a name that ends in .json is read as JSON
	Data []byte
	Path string // of the file, absolute; empty if the policy is not a file
	Dir  string // absolute directory that relative paths are relative to; empty means Cwd
	Cwd  string // the caller's working directory, for a policy that has no directory of its own, such as standard input
	Home string // the value of "~"; may be empty
	// Env has the values of "$VAR".
	Env map[string]string
	// ReadFile reads the file that extends names, by its absolute path. If it is nil, a policy cannot extend a file.
	ReadFile func(path string) ([]byte, error)
	// Flags are the additions of the command line.
	Flags []Flag
}
