// Package record tells what was done in a sandbox.
package record
