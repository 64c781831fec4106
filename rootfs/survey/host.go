package survey

import "github.com/sandboxrun/sandboxrun/rootfs/hostfs"

// surveyed is a Tree that has looked for all data.
type surveyed interface{ programData() []datum }

// HostTree is the file tree of the machine, and of its data what a survey finds that begins now, because meanwhile there is other
// work to do.
func HostTree() (hostfs.Tree, error) {
	h, err := hostfs.OpenHost()
	if err != nil {
		return nil, err
	}
	return surveyedTree(h), nil
}

// TracedTree is HostTree, with a trace of what the tree is asked.
func TracedTree() (hostfs.Tree, *hostfs.Trace, error) {
	h, trace, err := hostfs.OpenTraced()
	if err != nil {
		return nil, nil, err
	}
	return surveyedTree(h), trace, nil
}

func surveyedTree(h hostfs.Host) hostfs.Tree {
	return surveyedHost{h, inBackground(func() []datum { return surveyData(h) })}
}

type surveyedHost struct {
	hostfs.Host
	data func() []datum
}

func (t surveyedHost) programData() []datum { return t.data() }

// inBackground begins to work, and returns a function that waits for the result.
func inBackground[T any](work func() T) func() T {
	done := make(chan struct{})
	var result T
	go func() {
		defer close(done)
		result = work()
	}()
	return func() T {
		<-done
		return result
	}
}

// Data finds all that the rule shows, or takes it from a tree that has it.
func Data(t hostfs.Tree) []datum {
	if t, ok := t.(surveyed); ok {
		return t.programData()
	}
	return surveyData(t)
}
