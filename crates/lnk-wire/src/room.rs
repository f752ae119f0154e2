//! How much a wire holds at a time for all of its connections together.
//!
//! A sandbox opens as many connections as it likes, and leaves as much unfinished on
//! each as one may hold. What one alone may hold is therefore not enough to know
//! what the wire does: here it's counted over all.

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::ReadHalf;

use crate::log::{Log, Verb};

/// Connections that are served at a time, at most. Each takes three descriptors, a few
/// kilobytes, and one of the 28,232 ports that this machine has by default for all
/// connections to one service (ip_local_port_range in ip(7)): others have to find some.
const CONNECTIONS: usize = 12 * 1024;
/// Bytes of each kind, at most: of heads and TLS hellos of which more is to come,
/// which a new one goes past by what is read at once; of whole heads until they are
/// passed on; of bodies, which past it go on in pieces of [`SMALL`].
const MOST: usize = 16 * 1024 * 1024;
/// Bytes of a piece of a body when there is little room.
const SMALL: usize = 4096;
/// That there is no room is logged so often at most.
const SAID: Duration = Duration::from_secs(1);

/// What a wire holds.
#[derive(Debug, Default)]
pub(crate) struct Room {
    connections: Cell<usize>,
    unfinished: Cell<usize>,
    whole: Cell<usize>,
    bodies: Cell<usize>,
    /// When it was last logged that there is none.
    said: Cell<Option<Instant>>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connections,
    Unfinished,
    Whole,
    Bodies,
}

impl Room {
    /// A place for one more connection, as long as it's held; `None` where all are
    /// taken.
    pub fn enter(self: &Rc<Room>) -> Option<Held> {
        let free = self.connections.get() < CONNECTIONS;
        free.then(|| Held::new(self, Kind::Connections, 1))
    }

    /// Room for a whole head, of so many bytes, however many there are.
    pub fn whole_head(self: &Rc<Room>, bytes: usize) -> Held {
        Held::new(self, Kind::Whole, bytes)
    }

    /// The same, where there is room.
    pub fn new_head(self: &Rc<Room>, bytes: usize) -> Option<Held> {
        (self.whole.get() + bytes <= MOST).then(|| self.whole_head(bytes))
    }

    /// Room for so many bytes of a body, however many there are.
    pub fn body(self: &Rc<Room>, bytes: usize) -> Held {
        Held::new(self, Kind::Bodies, bytes)
    }

    /// How much of a body is to be read at once in place of `size`.
    pub fn piece(&self, size: usize) -> usize {
        if self.bodies.get() < MOST { size } else { SMALL }
    }

    /// Logs what there was no room for, but not each time.
    pub fn say(&self, log: &Log, reason: &str) {
        if self.said.get().is_none_or(|said| said.elapsed() >= SAID) {
            self.said.set(Some(Instant::now()));
            log.failed(&log.event(Verb::Unknown), reason);
        }
    }

    fn count(&self, kind: Kind) -> &Cell<usize> {
        match kind {
            Kind::Connections => &self.connections,
            Kind::Unfinished => &self.unfinished,
            Kind::Whole => &self.whole,
            Kind::Bodies => &self.bodies,
        }
    }
}

/// A part of the room, given back when it's dropped.
#[derive(Debug)]
pub(crate) struct Held {
    room: Rc<Room>,
    kind: Kind,
    amount: usize,
}

impl Held {
    fn new(room: &Rc<Room>, kind: Kind, amount: usize) -> Held {
        let mut held = Held { room: Rc::clone(room), kind, amount: 0 };
        held.set(kind, amount);
        held
    }

    fn set(&mut self, kind: Kind, amount: usize) {
        let before = self.room.count(self.kind);
        before.set(before.get() - self.amount);
        (self.kind, self.amount) = (kind, amount);
        let now = self.room.count(kind);
        now.set(now.get() + amount);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(self.kind, 0);
    }
}

/// Bytes of one connection that were read and not taken. An empty one has no memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: BytesMut,
    held: Held,
}

impl Buffer {
    pub fn new(room: &Rc<Room>) -> Buffer {
        Buffer { bytes: BytesMut::new(), held: Held::new(room, Kind::Unfinished, 0) }
    }

    /// Waits for more of a head; 0 at the end.
    pub async fn read_head(&mut self, from: &mut ReadHalf<'_>, size: usize) -> io::Result<usize> {
        self.read(from, Kind::Unfinished, |_| size).await
    }

    /// Waits for more of a body, less than `size` where there is little room; 0 at
    /// the end.
    pub async fn read_body(&mut self, from: &mut ReadHalf<'_>, size: usize) -> io::Result<usize> {
        self.read(from, Kind::Bodies, |room| room.piece(size)).await
    }

    async fn read(
        &mut self,
        from: &mut ReadHalf<'_>,
        kind: Kind,
        size: impl FnOnce(&Room) -> usize,
    ) -> io::Result<usize> {
        from.readable().await?;
        self.bytes.reserve(size(&self.held.room));
        self.held.set(kind, self.bytes.capacity());
        from.read_buf(&mut self.bytes).await
    }

    /// The room that it's counted in.
    pub fn room(&self) -> &Rc<Room> {
        &self.held.room
    }

    /// Whether it's one head too much, while more of it is needed.
    pub fn is_too_much(&self) -> bool {
        self.held.room.unfinished.get() > MOST
    }

    /// Takes bytes off the front.
    pub fn advance(&mut self, length: usize) {
        self.bytes.advance(length);
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
            self.held.set(self.held.kind, 0);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_connections_have_a_place_and_one_more_when_one_ends() {
        let room = Rc::new(Room::default());
        let mut held: Vec<_> = (0..CONNECTIONS).map(|_| room.enter().unwrap()).collect();
        assert!(room.enter().is_none());
        held.pop();
        assert!(room.enter().is_some());
    }

    #[test]
    fn heads_fill_the_room_and_bodies_come_in_smaller_pieces() {
        let room = Rc::new(Room::default());
        let head = room.new_head(MOST).unwrap();
        assert!(room.new_head(1).is_none());
        drop(head);
        assert!(room.new_head(1).is_some());

        let mut buffer = Buffer::new(&room);
        buffer.held.set(Kind::Bodies, MOST - 1);
        assert_eq!(room.piece(9999), 9999);
        buffer.held.set(Kind::Bodies, MOST);
        assert_eq!((room.piece(9999), buffer.is_too_much()), (SMALL, false));
        // What was a body's becomes a head's.
        buffer.held.set(Kind::Unfinished, MOST + 1);
        assert_eq!((room.piece(9999), buffer.is_too_much()), (9999, true));
        drop(buffer);
        assert_eq!((room.unfinished.get(), room.bodies.get()), (0, 0));
    }
}
