//! Requests in flight.

use std::rc::Rc;

use crate::job::Finish;
use crate::server::Server;
use crate::stats::count;

/// A request in flight. Dropped before its end, it counts as left by the client.
pub(crate) struct Flight {
    server: Rc<Server>,
    ended: bool,
}

impl Flight {
    pub(crate) fn begin(server: &Rc<Server>) -> Self {
        server.stats.stream_begins();
        Flight {
            server: Rc::clone(server),
            ended: false,
        }
    }

    /// Ends as planned. Called right before the last byte goes out, so that whoever has read that byte
    /// finds the request counted.
    pub(crate) fn end(&mut self, reason: Finish) {
        if !self.ended {
            self.ended = true;
            self.server.stats.stream_ends();
            count(&self.server.stats.completed);
            self.server.books.metrics.borrow_mut().finish(reason);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.ended {
            self.server.stats.stream_ends();
            count(&self.server.stats.aborted);
            self.server.books.metrics.borrow_mut().finish(Finish::Abort);
        }
    }
}
