//! News of links and addresses, for who waits for one.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use rtnetlink::MulticastGroup;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::Error;
use super::network::no_netlink;

/// Links and addresses come together: how long nothing more must have come.
const QUIET: Duration = Duration::from_millis(100);

/// Where they come all the time, they are looked at as they are: after so many pieces of news.
const MOST: usize = 1000;

/// Hears of links and addresses that come, change and go.
pub struct News {
    messages: BoxStream<'static, ()>,
    connection: JoinHandle<()>,
    /// Some has come that nobody was told of.
    untold: bool,
}

impl Drop for News {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl News {
    /// Hears of what happens from now on. It takes no rights.
    ///
    /// # Errors
    /// When there is no netlink socket.
    pub fn open() -> Result<News, Error> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
        ];
        let (connection, _, messages) = rtnetlink::new_multicast_connection(&groups).map_err(no_netlink)?;
        Ok(News {
            messages: messages.map(|_| ()).boxed(),
            connection: tokio::spawn(connection),
            untold: false,
        })
    }

    /// Resolves when something has happened, and no more does. May be dropped and called again.
    pub async fn come(&mut self) {
        if !self.untold && self.messages.next().await.is_none() {
            return std::future::pending().await;
        }
        self.untold = true;
        for _ in 0..MOST {
            match timeout(QUIET, self.messages.next()).await {
                Ok(Some(())) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.untold = false;
    }
}
