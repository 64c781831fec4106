// Package pool keeps sandboxes of one policy ready: built, proven, and never used. A pool lives in one process and ends with it, however that
// ends: a ready sandbox's process 1 ends with the process that made it.
//
//	.pool-NAME/socket <-- run, create: what they want             (protocol.go, claim.go; forkexec/pool.c for a plain run)
//	peer.go               who asks: the same user, the same machine to look at, the same limits?
//	facts.go              would the policy be decided now as it was when the sandbox was built?
//	pool.go               takes the oldest ready sandbox, hands it over, and builds another
//
// Where anything is not as it was the answer is no, and the caller goes the ordinary way. So a pool decides nothing about a sandbox: it only
// does earlier what would be done anyway. A sandbox that was handed over belongs to its owner and outlives the pool.
//
// It imports of ours container, machine, owner, forkexec, rootfs/hostfs, spec and spec/policy.
package pool
