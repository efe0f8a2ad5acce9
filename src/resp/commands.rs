//! Runs the commands of Redis clients that count hits against limits or read them, and writes their replies.

mod check;
mod reduce;
mod throttle;

use std::net::SocketAddr;
use std::time::Instant;

use self::reduce::Reduce;
use super::command::{Command, CommandError};
use super::reply::Replies;
use super::server::Resp;
use weir_store::{States, Store};

impl Command {
    pub async fn run<S: Store + States>(
        self,
        resp: &Resp<S>,
        client: Option<SocketAddr>,
        arguments: &[&[u8]],
        replies: &mut Replies,
    ) {
        resp.stats.count(self);
        let started = Instant::now();
        let replied = match self {
            Command::Check => check::check(resp, arguments, replies).await,
            Command::CheckAll => check::check_all(resp, arguments, replies).await,
            Command::Count => check::count(resp, arguments, replies).await,
            Command::Throttle => throttle::throttle(resp, arguments, replies).await,
            Command::Reduce => Reduce::REDUCE.run(resp, arguments, replies).await,
            Command::PReduce => Reduce::PREDUCE.run(resp, arguments, replies).await,
            Command::Get => Reduce::GET.run(resp, arguments, replies).await,
            Command::PGet => Reduce::PGET.run(resp, arguments, replies).await,
        };
        if let Err(error) = replied {
            use CommandError::{Count, Integer, Syntax, Text};
            // Other errors are counted where they are found, or are not the client's.
            if matches!(error, Count(_) | Integer | Syntax | Text) {
                resp.rate_limit.count_unreadable(client, &error);
            }
            replies.error(&error.to_string());
        }
        if self != Command::Count {
            resp.stats.decisions.record(started.elapsed().as_micros() as u64);
        }
    }
}
