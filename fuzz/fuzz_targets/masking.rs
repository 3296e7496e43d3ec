//! Any text and any message under the built-in rules: no panic, and masking what is masked changes nothing more; a message
//! that passes as it came is one that would have been told as it is. What has a hidden name is hidden beside any text, in each
//! form in which one is planted.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use ray_relay::config;
use ray_relay::dap::message_filter::{Action, MessageFilter};
use ray_relay::dap::messages::OfWorker;
use ray_relay::identity::Principal;
use ray_relay::masking::{MASKED, MaskedSession, MaskedStream, Masking};
use ray_relay::policy::{Rights, Scope, Scopes, SessionObligations};
use serde_json::Value;

static RULES: LazyLock<Arc<Masking>> = LazyLock::new(|| {
    let config = config::Masking {
        enabled: true,
        email: true,
        ..config::Masking::default()
    };
    Arc::new(Masking::new(&config))
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut message @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) {
        let rights = Rights {
            scopes: Scopes::NONE.with(Scope::View),
            obligations: SessionObligations::default(),
        };
        let mut filter = MessageFilter::new(&rights, &Principal::anonymous(), Some(&RULES));
        if filter.passes(bytes) {
            let told = filter.on_worker(message.clone());
            assert_eq!(told, [Action::ToClient(message.clone())]);
        }
        let carries = OfWorker::of_message(&message).carries;
        MaskedSession::new(RULES.clone()).on_worker(&mut message, carries);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let masked = RULES.text(text);
    assert!(masked == text || masked.contains(MASKED));
    assert_eq!(RULES.text(&masked), masked);
    let mut stream = MaskedStream::new(RULES.clone());
    let mut at = 0;
    for (end, _) in text.char_indices().step_by(7) {
        stream.push(&text[at..end]);
        at = end;
    }
    stream.quiet();
    // A value that was given a name comes out nowhere, whatever stands before it.
    let secret = "Qz7Qz7Qz7";
    let named = format!("{text}\npassword='{secret}'\n");
    if !text.contains(['\'', '"', '\\', '(', '[', '{', '<', '-', 'Q']) {
        assert!(!RULES.text(&named).contains(secret));
        for planted in [
            format!("[('password', '{secret}'), {text:?}]"),
            format!("{{'name': 'password', 'note': {text:?}, 'value': '{secret}'}}"),
            format!("<ContextVar name='password' default='{secret}' at {text}>"),
            format!("['--password', '{secret}', {text:?}]"),
            format!("{text}\ntrain --password {secret} {text}"),
            format!("{text}\npassword: |\n  {secret}\n"),
        ] {
            assert!(!RULES.text(&planted).contains(secret), "{planted}");
        }
    }
});
