// Package container acts: it turns a spec.Plan into a running sandbox and runs programs in it.
package container
