//! Clients that take what they can.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::{ask, read_to_end, setup, start};
use crate::support::redis::{Client, Reply, Server};
use crate::support::{PATIENCE, wait_for};

#[test]
fn requests_that_are_too_large_end_the_connection() {
    let (weir, address) = start(setup(None));
    let before = weir.resident_bytes();
    let many = format!("$1000\r\n{}\r\n", "x".repeat(1_000));
    let many = format!("*1024\r\n{}", many.repeat(100));
    let long = "x".repeat(1 << 17);
    for (sent, error) in [
        ("*1\r\n$9223372036854775807\r\n", "request is larger than 64 KiB"),
        ("*1\r\n$65537\r\n", "request is larger than 64 KiB"),
        ("*2147483647\r\n", "invalid multibulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1\r\n:5\r\n", "expected '$'"),
        ("*99999999999999999999999999999999999999", "too big count string"),
        (&long, "too big inline request"),
        (&many, "larger than 64 KiB"),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may be closed before all is sent.
        let _ = stream.write_all(sent.as_bytes());
        let reply = read_to_end(&mut stream);
        // A reset may discard the reply.
        let is_named = reply.starts_with("-ERR Protocol error: ") && reply.contains(error);
        assert!(is_named || reply.is_empty() && sent.len() > 10_000, "{error}: {reply}");
    }
    let grown = weir.resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
}

#[test]
fn a_client_that_does_not_read_is_closed_and_takes_little_memory() {
    let (weir, address) = start(setup(None).env("WEIR__CLIENTS__TIMEOUT", "300ms"));
    let before = weir.resident_bytes();
    let echo = format!("ECHO {}\r\n", "x".repeat(1_000)).repeat(64);
    let clients: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        for mut client in &clients {
            let echo = &echo;
            scope.spawn(move || {
                client.set_write_timeout(Some(PATIENCE)).unwrap();
                // Until weir has closed the connection.
                loop {
                    match client.write_all(echo.as_bytes()) {
                        Ok(()) => assert!(Instant::now() < deadline, "still open"),
                        Err(error) => {
                            assert_ne!(error.kind(), ErrorKind::WouldBlock, "still open");
                            break;
                        }
                    }
                }
            });
        }
    });
    let grown = weir.resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
    let mut client = Client::connect(address.port()).unwrap();
    assert_eq!(ask(&mut client, "PING"), "PONG");
}

#[test]
fn large_requests_and_replies_share_memory() {
    const CLIENTS: usize = 512;
    let (weir, address) = start(setup(None).env("WEIR__CLIENTS__MAX_BUFFERED", "4MiB"));
    let refused = || weir.metric("weir_resp_memory_refusals_total");
    let before = weir.resident_bytes();
    let text = "x".repeat(60_000);
    let whole = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len());
    // Half of the clients keep weir waiting for the rest of a request, the others do not read.
    let hostile: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
    std::thread::scope(|scope| {
        for (i, mut client) in hostile.iter().enumerate() {
            let whole = &whole;
            scope.spawn(move || {
                // weir may have closed the connection.
                client.set_write_timeout(Some(PATIENCE)).unwrap();
                let _ = match i % 2 {
                    0 => client.write_all(&whole.as_bytes()[..59_000]),
                    _ => (0..8).try_for_each(|_| client.write_all(whole.as_bytes())),
                };
            });
        }
        wait_for("the memory is used up", || (refused() > CLIENTS as u64 / 4).then_some(()));
        let mut client = Client::connect(address.port()).unwrap();
        assert!(ask(&mut client, "WEIR.CHECK shop 1 many a").starts_with("[1 "));
        let grown = weir.resident_bytes().saturating_sub(before);
        // The memory of all, the free part of each, and what an allocator keeps.
        assert!(grown < 64 << 20, "{grown} bytes");
        for client in &hostile {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    });
    drop(hostile);
    // weir notices that they are closed.
    let reply = wait_for("the memory is free again", || {
        let mut client = Client::connect(address.port()).ok()?;
        client.send(&["ECHO", &text]).ok().filter(|reply| !matches!(reply, Reply::Error(_)))
    });
    assert!(reply.text() == text);
}

/// `docs/security.md` states the bound.
#[test]
fn pipelines_that_wait_for_redis_stay_within_the_bound() {
    const CLIENTS: usize = 250;
    let redis = Server::start();
    let (weir, address) = start(setup(Some(&redis)).env("WEIR__CLIENTS__MAX_BUFFERED", "2MiB"));
    let before = weir.resident_bytes();
    // Redis answers no one meanwhile.
    let mut admin = Client::connect(redis.port()).unwrap();
    admin.send(&["CLIENT", "PAUSE", "5000", "ALL"]).unwrap();
    let check = "WEIR.CHECK shop 1 many a\r\n";
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
    for client in &mut clients {
        client.write_all(check.repeat(200).as_bytes()).unwrap();
    }
    let mut most = 0;
    // Until Redis answers again, and all clients are answered, whether they read or not.
    let sum = "weir_resp_commands_total{command=\"weir.check\"}";
    wait_for("all commands are answered", || {
        most = most.max(weir.resident_bytes());
        (weir.metric(sum) >= 200 * CLIENTS as u64).then_some(())
    });
    let grown = most.saturating_sub(before);
    assert!(grown < (2 << 20) + CLIENTS * (92 << 10), "{grown} bytes");
    assert_eq!(weir.metric("weir_resp_memory_refusals_total"), 0);
}

#[test]
fn a_slow_sender_is_closed_and_an_idle_client_is_not() {
    let (_weir, address) = start(setup(None).env("WEIR__CLIENTS__TIMEOUT", "300ms"));
    let mut idle = Client::connect(address.port()).unwrap();
    assert_eq!(ask(&mut idle, "PING"), "PONG");
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"PING\r\n*2\r\n$4\r\nPI").unwrap();
    assert_eq!(read_to_end(&mut slow), "+PONG\r\n");
    // Byte by byte is too slow as well, however long it has been sending.
    let mut trickle = TcpStream::connect(address).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while trickle.write_all(b"x").is_ok() {
        assert!(Instant::now() < deadline, "still open");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(ask(&mut idle, "PING"), "PONG");
}

#[test]
fn idle_clients_make_room_for_new_ones() {
    let (weir, address) = start(setup(None).env("WEIR__RESP__MAX_CONNECTIONS", "16"));
    let idle: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    for _ in 0..32 {
        let mut client = Client::connect(address.port()).unwrap();
        assert_eq!(ask(&mut client, "PING"), "PONG");
    }
    assert!(weir.metric("weir_connections_evicted_total{listener=\"resp\"}") > 0);
    drop(idle);
    wait_for("the connections end", || {
        (weir.metric("weir_connections{listener=\"resp\"}") == 0).then_some(())
    });
}

#[test]
fn a_busy_pipeline_leaves_others_their_turn() {
    let (_weir, address) = start(setup(None).env("WEIR__RUNTIME__THREADS", "1"));
    let mut flood = TcpStream::connect(address).unwrap();
    let mut reader = flood.try_clone().unwrap();
    let reading = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let pings = "PING\r\n".repeat(100_000);
    let sending = std::thread::spawn(move || {
        for _ in 0..20 {
            flood.write_all(pings.as_bytes()).unwrap();
        }
        flood.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut client = Client::connect(address.port()).unwrap();
    let mut answered = 0;
    while !sending.is_finished() {
        assert!(ask(&mut client, "WEIR.CHECK shop 1 many a").starts_with("[1 "));
        answered += 1;
    }
    sending.join().unwrap();
    // Two million pings were answered meanwhile, and this client was not kept until their end.
    assert_eq!(reading.join().unwrap().unwrap(), 2_000_000 * "+PONG\r\n".len() as u64);
    assert!(answered > 10, "{answered}");
}
