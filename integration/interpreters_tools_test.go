package integration

import (
	"os/exec"
	"testing"
)

// TestInterpretersTools: what Debian packages for its Python runs where the policy names that Python, also with the guard.
func TestInterpretersTools(t *testing.T) {
	const python = "/usr/bin/python3"
	tools := map[string]struct {
		args []string
		want string
	}{
		"pip":    {[]string{"-m", "pip", "download", "--no-index", "--no-deps", "./pack"}, "Successfully downloaded pack"},
		"pytest": {[]string{"-m", "pytest", "-q", "test_one.py"}, "1 passed"},
		"numpy":  {[]string{"-c", "import numpy; print(numpy.arange(101).sum())"}, "5050"},
	}
	flavours(t, func(b *box) {
		ws := b.mkdir("work")
		b.file("work/test_one.py", "def test_one(tmp_path):\n    assert tmp_path.exists()\n")
		b.file("work/pack/setup.py", "from setuptools import setup\nsetup(name='pack', version='1.0', py_modules=[])\n")
		for name, tool := range tools {
			b.t.Run(name, func(t *testing.T) {
				need(t, "python3:"+name, exec.Command(python, "-I", "-c", "import "+name).Run() == nil)
				for _, guard := range []string{"", "python"} {
					if guard != "" && name == "pip" { // it builds in another process
						continue
					}
					p := b.policy(object{"files": object{"interpreters": []string{python}}, "workspace": object{"source": ws}, "processes": object{"guard": guard}})
					b.on(t).run(append([]string{"run", "-p", p, "--", python}, tool.args...)...).exits(0).prints(tool.want)
				}
			})
		}
	})
}
