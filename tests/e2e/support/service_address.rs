//! One address for several replicas, as a Kubernetes service has: new connections go to replicas
//! that are ready, and open connections stay where they are.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::http;
use super::weir::Weir;

/// How often readiness is probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);

/// The address of a service, which forwards connections until it is dropped.
#[derive(Debug)]
pub struct ServiceAddress {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    replicas: Mutex<Vec<Arc<Replica>>>,
}

#[derive(Debug)]
struct Replica {
    grpc: SocketAddr,
    http: SocketAddr,
    ready: AtomicBool,
    connections: AtomicU64,
}

impl ServiceAddress {
    pub fn start() -> ServiceAddress {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("has an address");
        let shared = Arc::<Shared>::default();
        let (accepting, probing) = (shared.clone(), shared.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.ended.load(Ordering::Relaxed) {
                    return;
                }
                accepting.forward(client);
            }
        });
        thread::spawn(move || {
            while !probing.ended.load(Ordering::Relaxed) {
                probing.probe();
                thread::sleep(PROBE_INTERVAL);
            }
        });
        ServiceAddress { address, shared }
    }

    /// Adds a replica, which gets connections once it is ready.
    pub fn add(&self, weir: &Weir) {
        let replica = Replica {
            grpc: weir.grpc,
            http: weir.http,
            ready: AtomicBool::new(false),
            connections: AtomicU64::new(0),
        };
        self.shared.replicas.lock().unwrap().push(Arc::new(replica));
    }

    /// The number of connections that a replica has got.
    pub fn connections_to(&self, weir: &Weir) -> u64 {
        let replicas = self.shared.replicas.lock().unwrap();
        let replica = replicas.iter().find(|replica| replica.grpc == weir.grpc);
        replica.expect("it was added").connections.load(Ordering::Relaxed)
    }

    /// Whether new connections go to this replica.
    pub fn routes_to(&self, weir: &Weir) -> bool {
        let replicas = self.shared.replicas.lock().unwrap();
        let is_ready = |replica: &Arc<Replica>| replica.ready.load(Ordering::Relaxed);
        replicas.iter().any(|replica| replica.grpc == weir.grpc && is_ready(replica))
    }
}

impl Drop for ServiceAddress {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it notices.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn probe(&self) {
        let replicas = self.replicas.lock().unwrap().clone();
        for replica in replicas {
            let answer = http::ask(replica.http, "GET", "/readyz", &[], b"");
            let ready = answer.is_ok_and(|answer| answer.status == 200);
            replica.ready.store(ready, Ordering::Relaxed);
        }
    }

    /// Forwards a connection to the ready replica that has got the fewest; closes it if there is none.
    fn forward(&self, client: TcpStream) {
        let replicas = self.replicas.lock().unwrap();
        let ready = replicas.iter().filter(|replica| replica.ready.load(Ordering::Relaxed));
        let replica = ready.min_by_key(|replica| replica.connections.load(Ordering::Relaxed));
        let Some(replica) = replica else { return };
        let Ok(server) = TcpStream::connect(replica.grpc) else { return };
        replica.connections.fetch_add(1, Ordering::Relaxed);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let _ = from.set_nodelay(true);
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    }
}
