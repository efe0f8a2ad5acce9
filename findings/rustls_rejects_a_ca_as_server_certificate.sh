#!/usr/bin/env bash
# Behavior: `openssl req -x509` makes a certificate that is its own CA (basicConstraints CA:TRUE). A server that uses it,
#   and a client that has this very file as its only CA, agree in OpenSSL, in Go and in redis-cli. rustls ends the
#   handshake with `CaUsedAsEndEntity`, whatever names and dates say.
# Version: rustls 0.23.46 with rustls-webpki 0.103 (crates.io); Go's crypto/tls and OpenSSL of the machine accept it.
# Source: RFC 5280, 6.1: a trust anchor is no part of the path, so nothing of it need be checked; rustls-webpki demands
#   of every end-entity certificate that it is no CA (verify_cert.rs, check_basic_constraints).
# Why a guess goes wrong: the error is about the server's certificate, and the usual advice, to add it to the trusted
#   ones, is what has been done already.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
openssl version
go version
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost 2>/dev/null
echo "openssl: $(openssl verify -CAfile cert.pem cert.pem)"

cat >client.go <<'G'
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

func main() {
	pem, _ := os.ReadFile("cert.pem")
	pair, err := tls.LoadX509KeyPair("cert.pem", "key.pem")
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	near, far := net.Pipe()
	go tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake()
	fmt.Println("go:", tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "localhost"}).Handshake())
}
G
go run client.go | tee go.out

mkdir src
cat >Cargo.toml <<'T'
[package]
name = "example"
version = "0.1.0"
edition = "2021"

[dependencies]
rustls = { version = "=0.23.46", default-features = false, features = ["ring", "std"] }
T
cat >src/main.rs <<'R'
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};

fn main() {
    let cert = CertificateDer::from_pem_file("cert.pem").unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    println!("rustls: {:?}", verifier.verify_server_cert(&cert, &[], &name, &[], UnixTime::now()).map(|_| ()));
}
R
sed -i 's/^use rustls::client::WebPkiServerVerifier;/use rustls::client::WebPkiServerVerifier;\nuse rustls::client::danger::ServerCertVerifier;/' src/main.rs
CARGO_TARGET_DIR=$work/target CARGO_BUILD_BUILD_DIR=$work/target cargo run -q 2>cargo.log | tee rust.out || { cat cargo.log; exit 1; }
grep -q '^go: <nil>' go.out && grep -q 'CaUsedAsEndEntity' rust.out || { echo "the behavior has changed"; exit 1; }
