"use strict";
// Whatever a model or a tool wrote is shown with textContent: it never becomes HTML.
const $ = id => document.getElementById(id);
const add = (parent, kind, name, text = "") => {
  const made = parent.appendChild(document.createElement(kind));
  made.className = name;
  made.textContent = text;
  return made;
};
const chat = location.hash.slice(1) || crypto.randomUUID().slice(0, 8);
location.hash = chat;
let source = null;   // of the run that is under way
let left = null;     // a run that was left, and the last event that it told

function status(text) { $("status").textContent = text; }

function buttons() {
  $("send").disabled = source !== null;
  $("stop").hidden = source === null;
  $("go-on").hidden = left === null || source !== null;
}

async function places() {
  let there = null;
  try {
    there = await (await fetch("/chats/" + encodeURIComponent(chat))).json();
  } catch {
    return null;  // the connection was lost; the next event asks again
  }
  for (const place of ["oven", "table"]) $(place).textContent = there[place].join(", ") || "empty";
  return there;
}

// One run. Events may come again after a lost connection: a turn begins its text anew, a call is known by its id.
function show(run, bubble, after, ended) {
  const texts = bubble.texts ??= new Map(), calls = bubble.calls ??= new Map();
  const where = event => (event.path || []).join("/") + "#" + event.turn;
  const opened = new EventSource(`/events/${encodeURIComponent(run)}?after=${after}`);
  source = opened;
  let last = after;
  const told = (name, handle) => opened.addEventListener(name, message => {
    last = message.lastEventId || last;
    left = {run, bubble, after: last};
    handle(JSON.parse(message.data));
    $("chat").scrollTop = $("chat").scrollHeight;
  });
  const end = () => { opened.close(); source = null; left = null; places(); buttons(); ended?.(); };
  opened.onopen = () => status("");
  opened.onerror = () => {
    if (opened.readyState === EventSource.CLOSED) end();
    else status("The connection was lost; connecting again ...");
  };
  told("turn_started", event => {
    if (!texts.has(where(event))) texts.set(where(event), add(bubble, "p", ""));
    texts.get(where(event)).textContent = "";
  });
  told("text_delta", event => texts.get(where(event))?.append(event.text));
  told("retrying", event => { texts.get(where(event)).textContent = ""; });
  told("resumed", event => status(`The run goes on after step ${event.step}.`));
  told("call_started", event => {
    if (!calls.has(event.call_id)) calls.set(event.call_id, add(bubble, "div", "call"));
    calls.get(event.call_id).className = "call";
    calls.get(event.call_id).dataset.label = `${event.tool_name} ${event.arguments}`;
    calls.get(event.call_id).textContent = `${event.tool_name} ${event.arguments} ...`;
    places();
  });
  told("call_finished", event => {
    const undone = event.kept || !event.changes.files.added.length ? "" : ", undone";
    const call = calls.get(event.call_id) || add(bubble, "div", "call");
    call.className = event.kept ? "call succeeded" : "call ended";
    call.textContent = `${call.dataset.label ?? event.tool_name}: ${event.outcome}${undone}`;
    places();
  });
  told("finished", () => { status(""); end(); });
  told("failed", event => { add(bubble, "p", "failed", event.message); status(""); end(); });
  buttons();
}

function say(run, text, ended) {
  add($("chat"), "div", "you", text);
  show(run, add($("chat"), "div", "cafe"), 0, ended);
}

$("ask").onsubmit = async submitted => {
  submitted.preventDefault();
  const text = $("text").value.trim();
  if (!text || source) return;
  $("text").value = "";
  left = null;
  try {
    const answer = await fetch("/messages", {
      method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({chat, text}),
    });
    say((await answer.json()).run, text);
  } catch {
    $("text").value = text;
    status("The message could not be sent. Try again.");
  }
};

$("stop").onclick = () => {
  source.close();
  source = null;
  for (const call of left?.bubble.calls.values() ?? []) {
    if (call.className === "call") { call.className = "call ended"; call.textContent = call.textContent.replace(/ \.\.\.$/, ": left, undone"); }
  }
  status("Stopped. What was under way is undone.");
  buttons();
  setTimeout(places, 300);
};

$("go-on").onclick = () => { status(""); show(left.run, left.bubble, left.after); };

// A page that was loaded again: every message from its record, one after another.
places().then(there => {
  const messages = there?.messages ?? [];
  const next = () => { const one = messages.shift(); if (one) say(one.run, one.text, next); };
  next();
});
