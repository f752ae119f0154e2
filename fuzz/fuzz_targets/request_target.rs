//! A request's head never panics its reader. What is read goes to the host that it
//! names, and what is written for the origin is that one request, read by another
//! reader too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lnk_wire::body::{Chunks, Step};
use lnk_wire::head::{Form, Request, Response, answer};

fuzz_target!(|bytes: &[u8]| {
    request(bytes);
    response(bytes);
    chunks(bytes);
    // A target alone, as fuzzing finds it soonest.
    if let Ok(target) = str::from_utf8(bytes) {
        request(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes());
        request(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes());
    }
});

fn request(bytes: &[u8]) {
    let (request, length) = match Request::parse(bytes) {
        Ok(Some(read)) => read,
        Ok(None) => return,
        Err(bad) => {
            assert!(bad.reason.is_ascii());
            assert_one_answer(&answer(bad.status, &bad.reason, None));
            return;
        }
    };
    assert!(length <= bytes.len());
    let target = &request.target;
    assert_eq!(target.host.to_string().parse().as_ref(), Ok(&target.host));
    assert_ne!(target.port, 0);
    if let Form::Absolute(path) = &request.form {
        assert!(path == "*" || path.starts_with('/'));
        assert_is_that_request(&request, path);
    }
}

fn assert_is_that_request(request: &Request, path: &str) {
    let written = request.written();
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut read = httparse::Request::new(&mut headers);
    let status = read.parse(&written).expect("what is written is a request");
    assert_eq!(status, httparse::Status::Complete(written.len()));
    assert_eq!((read.method, read.path), (Some(&*request.method), Some(path)));
    let count =
        |name: &str| read.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name)).count();
    assert_eq!((count("host"), count("connection")), (1, 1));
    assert!(count("content-length") + count("transfer-encoding") <= 1);
}

fn response(bytes: &[u8]) {
    if let Ok(Some((response, length))) = Response::parse(bytes) {
        assert!(length <= bytes.len());
        for method in ["GET", "HEAD"] {
            let framing = response.framing(method);
            assert_one_answer(&response.written(framing, true));
        }
    }
}

fn assert_one_answer(written: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut read = httparse::Response::new(&mut headers);
    let status = read.parse(written).expect("what is written is a response");
    assert!(status.is_complete());
    let count =
        |name: &str| read.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name)).count();
    assert!(count("content-length") + count("transfer-encoding") <= 1);
}

fn chunks(bytes: &[u8]) {
    let (mut chunks, mut rest) = (Chunks::default(), bytes);
    loop {
        match chunks.next(rest) {
            Ok(Step::Skip(length) | Step::Data(length)) => {
                assert_ne!(length, 0);
                rest = &rest[length..];
            }
            Ok(Step::End { length, .. }) => return assert!(length <= rest.len()),
            Ok(Step::NeedMore) | Err(_) => return,
        }
    }
}
