//! Ports of this machine's loopback.

use super::*;

fn port_of(address: SocketAddr) -> Proxy {
    Proxy::start(&[], false, Serves::Port(address.port()))
}

#[test]
fn a_service_is_reached_on_either_family_with_its_half_closes() {
    for bound in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(bound).unwrap();
        let address = listener.local_addr().unwrap();
        let service = thread::spawn(move || {
            let mut client = Client(listener.accept().unwrap().0);
            let sent = client.rest();
            client.send("answer");
            sent
        });
        let proxy = port_of(address);
        let mut client = proxy.client();
        client.send("question");
        client.half_close();
        assert_eq!(client.rest(), "answer");
        assert_eq!(service.join().unwrap(), "question");
        let line = format!("port localhost:{}", address.port());
        assert_eq!(proxy.end().0, [format!("{line} allowed"), format!("{line} ended 8 6")]);
    }
}

#[test]
fn a_service_that_isnt_there_is_a_reset() {
    let (address, listener) = untouched();
    drop(listener);
    let proxy = port_of(address);
    assert!(proxy.client().rest_bytes().1);
    assert_eq!(proxy.end().0, [format!("port localhost:{} failed", address.port())]);
}
