//! News of links and addresses, for who waits for one.

use std::time::Duration;

use futures_util::StreamExt as _;
use rtnetlink::MulticastGroup;
use tokio::time::{sleep, timeout};

use super::error::Error;
use super::network::{self, Network};

/// Links and addresses come together: how long nothing more must have come.
const QUIET: Duration = Duration::from_millis(100);

/// Where they come all the time, they are looked at as they are: after so many pieces of news.
const MOST: usize = 1000;

/// How long before the kernel is asked again, where it says nothing any more.
const AGAIN: Duration = Duration::from_secs(1);

const GROUPS: [MulticastGroup; 3] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
];

/// Hears of links and addresses that come, change and go.
pub struct News {
    network: Network,
    messages: network::News,
    /// Some has come that nobody was told of.
    untold: bool,
}

impl News {
    /// Hears of what happens from now on. It takes no rights.
    ///
    /// # Errors
    /// When there is no netlink socket.
    pub fn open() -> Result<News, Error> {
        let (network, messages) = Network::listen(&GROUPS)?;
        Ok(News {
            network,
            messages,
            untold: false,
        })
    }

    /// Resolves when something has happened, and no more does. May be dropped and called again.
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
