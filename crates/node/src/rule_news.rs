//! News of rules: the kernel reports each one written or deleted with nft, or an iptables that uses nft.
//!
//! It reports none of legacy iptables. Damage done with that is found by its symptoms, or by the next check.

use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;
use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use tokio::time::sleep;

use super::rules::CHAINS;
use super::table::TABLE;

/// The multicast group of nf_tables (`NFNLGRP_NFTABLES` in linux/netfilter/nfnetlink.h).
const GROUP: u32 = 7;

/// Rule created and rule deleted: `NFNL_SUBSYS_NFTABLES` in the upper byte, `NFT_MSG_NEWRULE` or
/// `NFT_MSG_DELRULE` in the lower.
const MESSAGES: [u16; 2] = [0x0a06, 0x0a08];

/// `NFTA_RULE_TABLE` and `NFTA_RULE_CHAIN`.
const NAMES: [u16; 2] = [1, 2];

/// Bytes of a message's header and of netfilter's own header behind it.
const HEADER: usize = 20;

/// Bytes per read: the kernel sends what fits in a page or two.
const ROOM: usize = 64 << 10;

/// How long to wait after a read error.
const PAUSE: Duration = Duration::from_secs(1);

/// Watches for rules in the chains that we write into.
pub struct RuleNews {
    socket: TokioSocket,
    read: Vec<u8>,
}

impl RuleNews {
    /// Subscribes to rule changes. Requires NET_ADMIN.
    ///
    /// # Errors
    /// If the kernel has no nf_tables, or refuses.
    pub fn open() -> io::Result<RuleNews> {
        let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        socket.socket_mut().add_membership(GROUP)?;
        Ok(RuleNews {
            socket,
            read: Vec::with_capacity(ROOM),
        })
    }

    /// Resolves when a rule in one of our chains was added or deleted. Cancel-safe.
    pub async fn come(&mut self) {
        while !self.next().await {}
    }

    /// Discards everything reported so far.
    pub fn forget(&mut self) {
        // Bounded: a kernel that sends faster than we read has more news anyway.
        for _ in 0..1000 {
            if self.next().now_or_never().is_none() {
                return;
            }
        }
    }

    /// Reads some messages, and returns whether any is about our chains.
    async fn next(&mut self) -> bool {
        self.read.clear();
        match self.socket.recv(&mut self.read).await {
            Ok(()) => is_about_ours(&self.read),
            // The kernel's buffer overflowed: a lost message may have been about ours.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => true,
            Err(_) => {
                sleep(PAUSE).await;
                true
            }
        }
    }
}

/// Returns whether any of these messages is about a rule in one of our chains.
fn is_about_ours(mut octets: &[u8]) -> bool {
    while let Some(length) = octets.first_chunk().copied().map(u32::from_ne_bytes) {
        let length = length as usize;
        let Some(message) = octets.get(..length).filter(|_| length >= HEADER) else {
            return false;
        };
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        if MESSAGES.contains(&kind) {
            let [table, chain] = NAMES.map(|name| attribute(&message[HEADER..], name));
            let is = |one: Option<&[u8]>, name: &str| one == Some(name.as_bytes());
            let mut chains = CHAINS.iter();
            if is(table, TABLE) || chains.any(|(of, name)| is(table, of) && is(chain, name)) {
                return true;
            }
        }
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// The text of an attribute without its terminating zero.
fn attribute(mut octets: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[low, high, kind_low, kind_high]) = octets.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let content = octets.get(4..length)?;
        // The two highest bits are flags that describe the content's encoding.
        if u16::from_ne_bytes([kind_low, kind_high]) & 0x3fff == wanted {
            return content.strip_suffix(&[0]).or(Some(content));
        }
        octets = octets.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the kernel writes it, with a handle between the names and the rule's content.
    fn message(kind: u16, table: &str, chain: &str) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        let texts = [(1_u16, table.as_bytes()), (2, chain.as_bytes()), (3, &[7; 7])];
        for (kind, text) in texts {
            message.extend((text.len() as u16 + 5).to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(text);
            message.resize((message.len() + 1).next_multiple_of(4), 0);
        }
        let length = (message.len() as u32).to_ne_bytes();
        message[..4].copy_from_slice(&length);
        message
    }

    #[test]
    fn what_is_told_of_our_chains_is_heard() {
        let [written, deleted] = MESSAGES;
        for (kind, table, chain, expected) in [
            (written, "raw", "OUTPUT", true),
            (deleted, "nat", "POSTROUTING", true),
            (deleted, TABLE, "heartbeat", true),
            (written, "nat", "KUBE-SERVICES", false),
            (written, "kube-proxy", "OUTPUT", false),
            // A set element.
            (0x0a0c, TABLE, "heartbeat", false),
        ] {
            let message = message(kind, table, chain);
            assert_eq!(is_about_ours(&message), expected, "{kind:x} {table} {chain}");
        }
        let two = [
            message(written, "nat", "KUBE-SVC"),
            message(written, "raw", "OUTPUT"),
        ]
        .concat();
        assert!(is_about_ours(&two));
    }

    #[test]
    fn what_is_cut_short_or_lies_about_its_length_is_not_read() {
        let whole = message(MESSAGES[0], "raw", "OUTPUT");
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            assert!(!is_about_ours(&cut));
            // Makes the header claim this length.
            if let Some(length) = cut.first_chunk_mut::<4>() {
                *length = (end as u32).to_ne_bytes();
            }
            let _ = is_about_ours(&cut);
        }
        let mut endless = whole;
        endless[HEADER..HEADER + 2].copy_from_slice(&[0, 0]);
        assert!(!is_about_ours(&endless));
    }
}
