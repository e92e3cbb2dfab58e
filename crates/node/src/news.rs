//! News of links and addresses, for tasks that wait for one.

use std::time::Duration;

use futures_util::StreamExt as _;
use rtnetlink::MulticastGroup;
use tokio::time::{sleep, timeout};

use super::error::Error;
use super::network::{self, Network};

/// How long it must be quiet, since links and addresses come together.
const QUIET: Duration = Duration::from_millis(100);

/// After this many messages without a pause, the waiter is woken anyway.
const MOST: usize = 1000;

/// How long to wait before a closed netlink socket is reopened.
const AGAIN: Duration = Duration::from_secs(1);

const GROUPS: [MulticastGroup; 3] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
];

/// Watches for links and addresses that come, change and go.
pub struct News {
    network: Network,
    messages: network::News,
    /// A message has arrived that has not been reported yet.
    untold: bool,
}

impl News {
    /// Subscribes to changes. Requires no privileges.
    ///
    /// # Errors
    /// If there is no netlink socket.
    pub fn open() -> Result<News, Error> {
        let (network, messages) = Network::listen(&GROUPS)?;
        Ok(News {
            network,
            messages,
            untold: false,
        })
    }

    /// Resolves when something changed and it is quiet again. Cancel-safe.
    pub async fn come(&mut self) {
        if !self.untold {
            let _ = self.messages.next().await;
        }
        self.untold = true;
        while !self.network.is_open() {
            sleep(AGAIN).await;
            if let Ok((network, messages)) = Network::listen(&GROUPS) {
                (self.network, self.messages) = (network, messages);
            }
        }
        for _ in 0..MOST {
            match timeout(QUIET, self.messages.next()).await {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.untold = false;
    }
}
