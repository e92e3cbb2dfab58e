//! The node's network on this machine's kernel: namespaces for the node, a pod that asks and the cluster's
//! DNS, with kube-proxy's translation between them.
//!
//! They need root, `ip`, `iptables`, `nft` and `conntrack`:
//! `cargo test --release --test node -- --ignored --test-threads 1 --skip cluster::`.
//! Those in `cluster` need a Kubernetes node, which `tests/cluster/run.sh` starts.

mod load;
mod world;

mod by_hand;
mod cluster;
mod conntrack;
mod falling;
mod interleaving;
mod repairing;
mod rolling;
