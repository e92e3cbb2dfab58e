use std::cell::RefCell;
use std::path::Path;

use tokio::io::{AsyncReadExt, BufStream, DuplexStream};
use tokio::runtime::LocalRuntime;
use tokio::sync::watch;

use super::super::client_connections::ClientConnections;
use super::super::service::Limits;
use super::*;
use crate::serve::generation::Generation;
use crate::serve::{Live, Shared};
use dnsweir_engine::filter::Engine;
use dnsweir_os::clock::Uptime;

const LISTENER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 53);

/// A listener's service, its connections, and its stop signal.
pub fn service() -> (Service, Arc<ClientConnections>, watch::Sender<bool>) {
    let text = format!("listen \"{LISTENER}\"\nzone \".\" {{ forward \"192.0.2.53\" }}");
    let config = crate::config::parse("test", &text, Path::new("/"), &[]).unwrap();
    let connections = ClientConnections::new(&config.listen, 10);
    let limits = Limits::new(&config.listen, 1, Arc::clone(&connections));
    let generation = Generation::build(1, config, &Engine::new().unwrap(), None, None).unwrap();
    let shared = Shared::new(1 << 20, None);
    let server = shared.server(LISTENER);
    let live = Live::new(Arc::new(generation), Vec::new(), None, Arc::clone(&shared), 0);
    let (stopping, stop) = watch::channel(false);
    let leave = stop.clone();
    let service = Service {
        worker: Worker::new(shared, live),
        server,
        limits: Rc::new(RefCell::new(limits)),
        stop,
        leave,
    };
    (service, connections, stopping)
}

/// Runs a conversation beside its client. Its stream keeps what is written until it is flushed, and takes few bytes at a
/// time, so that no reply goes through in one piece. Returns why it ended.
fn converse_beside(
    asking: impl AsyncFnOnce(DuplexStream, &Arc<ClientConnections>, &Arc<ClientConnection>),
) -> Option<CloseReason> {
    LocalRuntime::new().unwrap().block_on(async {
        let (service, connections, _stopping) = service();
        let client = SocketAddr::new(LISTENER.ip(), 40_000);
        let connection = connections.open(client.ip(), Uptime::START).unwrap();
        let (ours, theirs) = tokio::io::duplex(16);
        let conversation = converse(service, Transport::Tcp, BufStream::new(ours), client, &connection);
        let (reason, ()) = tokio::join!(conversation, asking(theirs, &connections, &connection));
        reason
    })
}

/// TLS streams may do so.
#[test]
fn replies_leave_streams_that_keep_what_is_written_until_they_are_flushed() {
    let reason = converse_beside(async |mut theirs, _, _| {
        for id in [1_u16, 2] {
            let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x09localhost\0\0\x01\0\x01".to_vec();
            query[..2].copy_from_slice(&id.to_be_bytes());
            theirs.write_u16(query.len() as u16).await.unwrap();
            theirs.write_all(&query).await.unwrap();
            let mut reply = vec![0; theirs.read_u16().await.unwrap().into()];
            theirs.read_exact(&mut reply).await.unwrap();
            assert_eq!(reply[..2], id.to_be_bytes());
        }
        theirs.shutdown().await.unwrap();
        assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
    });
    assert_eq!(reason, None);
}

/// Otherwise a stop would cut them.
#[test]
fn replies_are_owed_while_a_stream_buffers_them() {
    converse_beside(async |mut theirs, connections, connection| {
        let query = b"\0\x1b\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x09localhost\0\0\x01\0\x01";
        theirs.write_all(query).await.unwrap();
        let mut reply = vec![0; theirs.read_u16().await.unwrap().into()];
        tokio::select! {
            biased;
            () = connections.settled() => panic!("the client has only begun to take it"),
            () = yield_now() => assert_eq!(connection.unsent(), 0),
        }
        theirs.read_exact(&mut reply).await.unwrap();
        connections.settled().await;
        theirs.shutdown().await.unwrap();
    });
}

/// A reply that ends can make room for queries that were read before, while the client sends more.
#[test]
fn what_was_read_before_is_answered_before_more_is_read() {
    LocalRuntime::new().unwrap().block_on(async {
        let (service, connections, _stopping) = service();
        let address = SocketAddr::new(LISTENER.ip(), 40_000);
        let connection = connections.open(address.ip(), Uptime::START).unwrap();
        let client = Client {
            address,
            server: service.server,
            transport: Transport::Tcp,
            received: service.worker.now(),
            limit: MESSAGE_MAXIMUM,
            keepalive: None,
        };
        let (ours, mut theirs) = tokio::io::duplex(FRAME_MAXIMUM);
        let mut conversation = Conversation::new(Rc::clone(&service.worker), ours, client, connection);
        let mut query = b"\0\x1b\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x09localhost\0\0\x01\0\x01".to_vec();
        query[1] = query.len() as u8 - 2;
        let kept = query.repeat(FRAME_MAXIMUM / query.len());
        conversation.keep(&kept, false);
        theirs.write_all(&query).await.unwrap();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let polled = conversation.poll(&mut context);
        assert!(matches!(polled, Poll::Ready(Ok(false))), "{polled:?}");
        assert!(
            conversation.owed.connection.has_input(|input| input == kept),
            "nothing was read"
        );
        conversation.go_on();
        assert!(
            !conversation
                .owed
                .connection
                .has_input(|input| Frames::of(input).is_due())
        );
    });
}
