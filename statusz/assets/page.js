// The page. It sets texts from the server only with textContent, and never makes HTML of them.
'use strict';
(() => {
  const $ = (id) => document.getElementById(id);
  // escaped replaces characters that reorder a line or are invisible, as noonctl does.
  const escaped = (text) => String(text).replace(/[^\P{C}\n]|[\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164\uffa0]/gu, (c) => '\\u{' + c.codePointAt(0).toString(16) + '}');
  const make = (tag, cls, ...children) => {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    e.append(...children.filter(Boolean).map((c) => (c instanceof Node ? c : escaped(c)))); // strings become text nodes
    return e;
  };
  const put = (e, text) => { if (e.textContent !== (text = escaped(text))) e.textContent = text; };
  const fill = (e, ...children) => e.replaceChildren(...children.filter(Boolean));
  // urlOf returns the URL of a part of the page, without the user and the password of the page's
  // own URL: fetch refuses those, and the browser sends them by itself.
  const urlOf = (part) => new URL(part, location.origin + location.pathname).href;
  // said returns what an answer says. A proxy may answer with HTML.
  const said = async (answer) => {
    const plain = (answer.headers.get('Content-Type') || '').startsWith('text/plain');
    const text = plain ? (await answer.text()).trim().replace(/^statusz: /, '') : '';
    return text || 'the answer was ' + answer.status;
  };

  // ---- Times. The server's clock is this one plus skew.
  let skew = 0;
  const clock = () => Date.now() + skew;
  const span = (ms) => {
    const s = ms / 1000;
    if (s < 1) return Math.round(ms) + ' ms';
    return s < 10 ? s.toFixed(1) + ' s' : rough(s);
  };
  const rough = (seconds) => { // whole seconds, for what changes while it is shown
    const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(m / 60);
    if (s < 120) return s + ' s';
    if (m < 60) return m + ' min ' + (s % 60) + ' s';
    return h < 48 ? h + ' h ' + (m % 60) + ' min' : Math.floor(h / 24) + ' days';
  };
  const age = (at) => rough((clock() - at) / 1000);
  const left = (at) => rough(Math.ceil((at - clock()) / 1000));
  const due = (at) => at <= clock();
  const instant = (at) => {
    const d = new Date(at);
    return isNaN(d) ? '' : d.toISOString().replace('T', ' ').replace(/\.000Z|Z$/, '') + ' UTC';
  };
  const word = (n, one, many) => n + ' ' + (n === 1 ? one : many);
  // live is a text that changes with time.
  const live = (cls, text) => {
    const e = make('span', cls + ' ticks');
    e.live = () => put(e, text());
    e.live();
    return e;
  };
  const at = (e, ms) => { e.title = instant(ms); return e; };

  // ---- The URLs of pages of jobs can be shared, also by mail, so they have no password.
  const view = new URLSearchParams(location.search);
  const only = view.get('job'); // the page of one job
  const linkTo = (name) => {
    const a = make('a', '', name);
    a.href = urlOf('?job=' + encodeURIComponent(name));
    return a;
  };

  // ---- Rows. A row is made once and then changed, so that the focus stays.
  const row = (name, kind) => {
    const r = { name, data: null, body: make('div', 'body'), acts: make('div', 'acts') };
    r.root = make('li', 'row', make('div', '', make('div', 'name', kind === 'jobs' && !only ? linkTo(name) : name), r.acts), r.body);
    addActs(r, kind);
    return r;
  };
  const queue = (title, all, more, text) => {
    if (!all.length) return null;
    const list = make('ol', 'queue', make('li', '', title));
    all.forEach((one, i) => list.append(text(one, i + 1)));
    if (more) list.append(make('li', '', 'and ' + more + ' more'));
    return list;
  };

  const lease = (ends) => {
    const e = live('quiet number', () => (due(ends) ? 'lease has ended' : left(ends) + ' left'));
    e.title = 'The lease ends then unless it is renewed.';
    return e;
  };
  const showElection = (r, e) => {
    const parts = [];
    const first = make('div', 'line');
    if (e.leader) {
      first.append(make('span', 'who', e.leader),
        at(live('quiet', () => 'leading for ' + age(e.acquired)), e.acquired),
        make('span', 'quiet', 'term ' + e.term), make('span', 'quiet number', 'token ' + e.token));
      const fillOf = make('i'), bar = make('div', 'bar ticks', fillOf);
      bar.setAttribute('aria-hidden', 'true'); // the text says the same
      bar.live = () => {
        const part = Math.min(1, Math.max(0, (e.ends - clock()) / e.lease_ms));
        fillOf.style.transform = 'scaleX(' + part.toFixed(3) + ')';
        bar.classList.toggle('low', part < 1 / 3);
      };
      parts.push(first, make('div', 'lease', bar, lease(e.ends)));
    } else {
      first.append(make('span', 'none', 'no leader'));
      if (e.last_leader) first.append(make('span', 'quiet', 'last leader ' + e.last_leader));
      if (e.released) first.append(at(live('quiet', () => 'resigned ' + age(e.released) + ' ago'), e.released));
      if (e.term) first.append(make('span', 'quiet', 'term ' + e.term));
      parts.push(first);
    }
    if (e.asked) parts.push(make('div', 'quiet', 'The leader was asked to ' + (e.asked.to ? 'transfer to ' + e.asked.to : 'resign') + ', by ' + by(e.asked)));
    const about = Object.entries(e.metadata || {});
    if (about.length) parts.push(make('div', 'line quiet', ...about.map(([k, v]) => make('span', '', k + '=' + v))));
    parts.push(queue('Candidates:', e.candidates, e.more_candidates, (c, i) =>
      at(make('li', '', i + '. ' + c.identity + (c.promoted ? ' (promoted)' : '')), c.since)));
    fill(r.body, ...parts);
  };

  const owner = (x) => (x.owner ? ' for ' + x.owner : '');
  const showLock = (r, l) => {
    const parts = [];
    for (const h of l.holders) {
      parts.push(make('div', 'line', make('span', 'who', (h.identity || 'another program') + owner(h)),
        l.kind === 'readwrite' && make('span', 'quiet', h.reads ? 'reads' : 'writes'),
        l.kind === 'semaphore' && make('span', 'quiet', 'slot ' + h.slot + ' of ' + l.slots),
        h.since && at(live('quiet', () => 'holding for ' + age(h.since)), h.since),
        h.token && make('span', 'quiet number', 'token ' + h.token),
        h.ends && lease(h.ends)));
    }
    if (l.more_holders) parts.push(make('div', 'quiet', 'and ' + word(l.more_holders, 'more holder', 'more holders')));
    if (!l.holders.length) {
      parts.push(make('div', 'quiet', l.kind === 'foreign' ? 'another program wrote this key' : 'free'));
    }
    if (l.no_ttl) parts.push(make('div', 'error', 'The key has no TTL, so waiters may wait for ever.'));
    parts.push(queue('Queue:', l.waiters, l.more_waiters, (w, i) =>
      at(make('li', '', i + '. ' + w.identity + owner(w) + (w.reads ? ' (reads)' : '') + (w.alive ? '' : ' (does not answer)')), w.since)));
    fill(r.body, ...parts);
  };

  const showPartitions = (r, s) => {
    fill(r.body, make('div', 'line', ...s.replicas.map((x) =>
      make('span', x.identity ? 'who' : 'none', (x.identity || 'no leader') + ': ' + word(x.leads, 'partition', 'partitions'))),
    s.more_replicas && make('span', 'quiet', 'and ' + word(s.more_replicas, 'more replica', 'more replicas'))));
  };

  const outcomes = { s: 'succeeded', f: 'failed', u: 'unknown', k: 'skipped', r: 'running', w: 'waits for a replica' };
  // squares returns what the squares of a job show, oldest first.
  const squares = (j) => {
    const all = j.ended.map((e) => ({
      id: 'e' + e.k + '.' + (e.s || 0) + '.' + (e.l || 0), tick: e.k, triggered: Math.max(0, -e.k), last: e.l, count: e.c, attempt: e.a,
      type: e.o, holder: e.h, start: e.s, took: e.d, error: e.e, ended: true,
    })).reverse();
    for (const o of j.open || []) {
      all.push({
        id: 'o' + o.tick + '.' + o.attempt, tick: o.triggered ? -o.tick : o.tick, triggered: o.triggered && o.tick, attempt: o.attempt, type: o.running ? 'r' : 'w', holder: o.holder,
        start: o.attempt ? o.since : 0, error: o.attempts?.at(-1).error,
        by: [o.request && o.request.action + ' by ' + by(o.request), o.canceled && 'canceled by ' + by(o.canceled)].filter(Boolean).join(', '),
      });
    }
    return all.slice(-60);
  };
  const several = (e) => e.last && e.count !== 1; // skipped ticks, or a change of the schedule, which has no count
  const tickName = (q) => (q.triggered ? 'triggered ' + instant(q.triggered) : instant(q.tick));
  const describe = (q) => {
    const lines = [tickName(q) + ': ' + outcomes[q.type]];
    if (several(q)) lines[0] = (q.count ? word(q.count, 'tick', 'ticks') : 'ticks') + ' from ' + instant(q.tick) + ' to ' + instant(q.last) + ': ' + outcomes[q.type];
    if (q.attempt) lines.push('attempt ' + q.attempt + (q.holder ? ' on ' + q.holder : ''));
    if (q.start && q.ended) lines.push('took ' + span(q.took || 0));
    else if (q.start) lines.push('for ' + age(q.start));
    if (q.error) lines.push((q.type === 'k' ? 'reason: ' : 'error: ') + q.error);
    if (q.by) lines.push(q.by);
    return lines.join('\n');
  };

  let strips = 0;
  // The strip is one stop of the Tab key. The arrow keys move between its squares.
  const makeStrip = (r) => {
    const strip = make('ol', 'strip');
    strip.id = 'strip' + ++strips;
    strip.tabIndex = 0;
    strip.setAttribute('role', 'listbox');
    strip.setAttribute('aria-label', 'Runs of ' + r.name + ', oldest first');
    r.squares = [];
    r.chosen = '';
    const show = (i) => {
      if (i < 0 || i >= r.squares.length) return;
      r.chosen = r.squares[i].id;
      [...strip.children].forEach((e, n) => e.classList.toggle('on', n === i));
      strip.setAttribute('aria-activedescendant', strip.children[i].id);
      tip(strip.children[i], r.squares[i]);
    };
    const current = () => r.squares.findIndex((q) => q.id === r.chosen);
    const last = () => r.squares.length - 1;
    strip.addEventListener('focus', () => { if (strip.matches(':focus-visible')) show(current() < 0 ? last() : current()); });
    strip.addEventListener('blur', () => { // the choice stays, for the return from a dialog
      [...strip.children].forEach((e) => e.classList.remove('on'));
      hideTip();
    });
    strip.addEventListener('keydown', (event) => {
      const i = current();
      const to = { ArrowLeft: Math.max(0, i - 1), ArrowRight: Math.min(last(), i + 1), Home: 0, End: last() }[event.key];
      if (event.key === 'Escape') hideTip();
      else if ((event.key === 'Enter' || event.key === ' ') && i >= 0) { event.preventDefault(); details(r, r.squares[i]); }
      else if (to !== undefined) { event.preventDefault(); show(to); }
    });
    const index = (event) => [...strip.children].indexOf(event.target.closest('li'));
    strip.addEventListener('pointerover', (event) => { const i = index(event); if (i >= 0) tip(strip.children[i], r.squares[i]); });
    strip.addEventListener('pointerout', hideTip);
    strip.addEventListener('click', (event) => { const i = index(event); if (i >= 0) details(r, r.squares[i]); });
    r.strip = strip;
    r.restrip = (all) => {
      const same = all.length === r.squares.length && all.every((q, i) => q.id === r.squares[i].id && q.type === r.squares[i].type);
      const chosen = current(), tippedAt = [...strip.children].indexOf(tipped?.over);
      const tippedId = tippedAt < 0 ? '' : r.squares[tippedAt].id;
      r.squares = all;
      if (!same) {
        strip.replaceChildren(...all.map((q, i) => {
          const e = make('li', q.type);
          e.id = strip.id + '.' + i;
          e.setAttribute('role', 'option');
          return e;
        }));
      }
      all.forEach((q, i) => strip.children[i].setAttribute('aria-label', describe(q)));
      // The square of a run that has ended replaces that of the open run.
      const place = (id, before) => { const i = all.findIndex((q) => q.id === id); return i < 0 ? Math.min(before, last()) : i; };
      if (tippedAt >= 0 && last() < 0) hideTip();
      else if (tippedAt >= 0) { const i = place(tippedId, tippedAt); tip(strip.children[i], all[i]); }
      if (chosen < 0 || last() < 0) return;
      const i = place(r.chosen, chosen);
      r.chosen = all[i].id;
      strip.setAttribute('aria-activedescendant', strip.children[i].id);
      strip.children[i].classList.toggle('on', document.activeElement === strip && strip.matches(':focus-visible'));
    };
  };

  const showJob = (r, j) => {
    if (!r.strip) {
      r.first = make('div', 'line');
      r.second = make('div', 'columns quiet');
      makeStrip(r);
      fill(r.body, r.first, r.strip, r.second);
    }
    const runs = (j.open || []).filter((o) => o.running);
    const waits = (j.open || []).length - runs.length;
    fill(r.first,
      j.paused && at(make('span', 'chip warn', 'paused'), j.paused_since),
      !j.replicas && make('span', 'chip warn', 'no replicas'),
      runs.length && make('span', 'chip run', runs.length > 1 ? 'running (' + runs.length + ')' : 'running'),
      runs.length && live('who', () => runs[0].holder + ', attempt ' + runs[0].attempt + ', for ' + age(runs[0].since)),
      runs.some((o) => o.canceled) && make('span', 'chip warn', 'canceled'),
      waits && make('span', 'quiet', word(waits, 'run waits', 'runs wait') + ' for a replica'),
      j.next && !j.paused && at(live('number', () => (due(j.next) ? 'next tick is due' : 'next tick in ' + left(j.next))), j.next),
      j.last_success ? at(live('quiet', () => 'last success ' + age(j.last_success) + ' ago'), j.last_success) : make('span', 'quiet', 'no success yet'));
    fill(r.second, make('span', ['failed', 'unknown'].includes(j.outcome) ? 'error' : '', j.outcome ? 'last run ' + j.outcome : 'no run yet'),
      make('span', '', j.schedule ? 'schedule ' + j.schedule : ''), make('span', '', word(j.replicas, 'replica', 'replicas')),
      j.coming && make('span', '', word(j.coming, 'run', 'runs') + ' at an instant'),
      j.definitions > 1 && make('span', '', j.definitions + ' definitions'), j.more_open && make('span', '', word(j.more_open, 'more open run', 'more open runs')));
    r.restrip(squares(j));
  };

  const lists = {
    elections: { title: 'Elections', show: showElection, none: 'No election had a leader within the last week.' },
    jobs: { title: 'Jobs', show: showJob, none: 'No job has a history.' },
    locks: { title: 'Locks', show: showLock, none: 'No lock is held or waited for.' },
    partitions: { title: 'Partitions', show: showPartitions, none: 'No replicas share partitions.' },
  };

  // ---- The details of a square, by mouse, tap and keyboard.
  let tipped = null; // the square whose details are shown, and its element
  const tip = (over, q) => {
    tipped = { over, q };
    const t = $('tip');
    put(t, describe(q));
    t.hidden = false;
    const box = over.getBoundingClientRect();
    t.style.left = Math.max(8, Math.min(box.left, innerWidth - t.offsetWidth - 8)) + 'px';
    const above = box.top - t.offsetHeight - 6;
    t.style.top = (above > 4 ? above : box.bottom + 6) + 'px';
  };
  const hideTip = () => { tipped = null; $('tip').hidden = true; };
  const retip = () => { if (tipped?.over.isConnected) tip(tipped.over, tipped.q); else hideTip(); };
  // The browser scrolls to a square that gets the focus.
  addEventListener('scroll', retip, { passive: true });
  addEventListener('resize', retip);

  // An action or an error may hide what has the focus. Another control of the row then gets it, at once or
  // when there is one again.
  let unfocused = null; // the row that had the focus, if none of its controls can have it now
  const focusRow = (r) => {
    ((r.buttons || []).find((b) => !b.hidden) || r.strip)?.focus();
    unfocused = document.activeElement === document.body ? r : null;
  };

  const button = (text, act) => {
    const b = make('button', '', text);
    b.type = 'button';
    b.addEventListener('click', act);
    return b;
  };
  let sending = false; // an action, whose dialog shows the answer
  let opener = null; // the row that the dialog is about
  const openDialog = (r, title, ...parts) => {
    if (sending) return;
    hideTip();
    opener = r;
    const h = make('h2', '', title);
    h.id = 'dialog-title';
    fill($('dialog'), h, ...parts);
    if (!$('dialog').open) $('dialog').showModal();
    $('dialog').querySelector('input, .close').focus(); // an Enter too many does no harm
  };
  const closeDialog = () => $('dialog').close();
  const closeButton = () => {
    const b = button('Close', closeDialog);
    b.className = 'close';
    return b;
  };
  $('dialog').addEventListener('close', () => { if (document.activeElement === document.body) focusRow(opener); });
  // offer returns the button of what can be done to a run.
  const offer = (r, q) => {
    if (!acting || q.type === 's' || several(q)) return null;
    return q.ended ? button('Run again…', () => confirm('rerun', r(), q)) : button('Cancel this run…', () => confirm('cancel', r(), q));
  };
  const details = (r, q) => {
    const text = make('p', '', describe(q));
    openDialog(r, 'Job ' + r.name, text, make('div', 'buttons', offer(() => r, q), closeButton()));
    if (q.error?.endsWith('…')) whole(r.name, q).then((error) => put(text, describe({ ...q, error })), (failure) => text.append('\n(not the whole error: ' + failure.message + ')'));
  };

  // ---- All about one job.
  const read = async (part, query) => {
    const answer = await fetch(urlOf(part + '?' + new URLSearchParams(query)), { signal: AbortSignal.timeout(15000) });
    if (answer.ok) return answer.json();
    throw Object.assign(new Error(await said(answer)), { code: answer.status });
  };
  const readJob = (name) => read('job', { name });
  // whole returns the whole error of a square.
  const whole = async (name, q) => {
    const j = await readJob(name);
    const same = (run) => keyOf(run) === q.tick;
    const run = q.ended ? j.runs.find((e) => same(e) && (Date.parse(e.start) || 0) === (q.start || 0)) : j.status.open.find(same);
    if (!run) throw new Error('the run has changed');
    return q.ended ? run.error : run.attempts.at(-1).error;
  };
  const keyOf = (run) => (run.triggered ? -1 : 1) * Date.parse(run.tick);
  const when = (text) => (Date.parse(text) > 0 ? instant(Date.parse(text)) : '');
  const between = (start, end) => { const ms = Date.parse(end) - Date.parse(start); return ms >= 0 ? 'took ' + span(ms) : ''; };
  const by = (act) => act.by + (act.reason ? ': ' + act.reason : '');
  const outcomeOf = (name) => Object.keys(outcomes).find((letter) => outcomes[letter] === name);
  const runItem = (type, run, ...texts) => {
    const item = make('li', 'run', make('div', 'line', make('span', 'who', make('span', 'strip', make('li', type)), (run.triggered ? 'triggered ' : '') + when(run.tick) + ': ' + outcomes[type]),
      ...[run.attempt && 'attempt ' + run.attempt, run.holder && 'on ' + run.holder, ...texts].filter(Boolean).map((text) => make('span', 'quiet', text))));
    const all = run.attempts || [];
    const told = all.length === 1 && all[0].error === run.error; // by the run itself
    if (run.error) item.append(make('div', type === 'k' ? 'quiet' : 'error', run.error));
    const start = Date.parse(run.start) || 0, b = offer(() => lists.jobs.rows.get(only), {
      ...run, type, tick: keyOf(run), triggered: run.triggered && Date.parse(run.tick), last: Date.parse(run.last) || 0, start, took: Date.parse(run.end) - start, ended: !!run.outcome,
    });
    b?.setAttribute('aria-label', b.textContent.slice(0, -1) + ', ' + when(run.tick));
    if (b) item.append(make('div', 'acts', b));
    if (!told) for (const a of all) {
      item.append(make('div', 'quiet', 'attempt ' + a.number + (a.holder ? ' on ' + a.holder : '') + ', ' + when(a.start) + (between(a.start, a.end) && ', ' + between(a.start, a.end)) + ': ' + (a.error || 'succeeded')));
    }
    return item;
  };
  // plot returns bars for times, the oldest run first; null: there are none. CSS sets their colors.
  const plot = (title, runs, time) => {
    const svg = (tag, attributes, ...children) => {
      const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
      for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
      e.append(...children);
      return e;
    };
    const all = runs.map((e, i) => ({ e, ms: time(e, i, runs) })).filter((one) => one.ms >= 0).reverse();
    if (!all.length) return null;
    const most = Math.max(...all.map((one) => one.ms)), text = title + ', at most ' + span(most);
    return make('div', 'plot', make('div', 'quiet', text), svg('svg', { viewBox: '0 0 ' + 6 * all.length + ' 40', width: 6 * all.length, height: 40, preserveAspectRatio: 'none', role: 'img', 'aria-label': text },
      ...all.map(({ e, ms }, i) => {
        const height = Math.max(1, 40 * ms / (most || 1));
        return svg('rect', { x: 6 * i, y: 40 - height, width: 5, height, class: outcomeOf(e.outcome) }, svg('title', {}, when(e.tick) + ': ' + span(ms)));
      })));
  };
  const took = (e) => (e.start ? Date.parse(e.end) - Date.parse(e.start) : -1);
  // late returns how late a run began. A run of which there is an older one was requested by an operator.
  const late = (e, i, all) => (e.start && !all.slice(i + 1).some((o) => keyOf(o) === keyOf(e)) ? Math.max(0, Date.parse(e.attempts?.[0]?.start || e.start) - Date.parse(e.tick)) : -1);
  const about = make('div');
  const part = (title, ...items) => (items.length ? make('section', '', make('div', 'head', make('h2', '', title)), make('ul', 'rows', ...items)) : null);
  const showAbout = (j) => {
    const st = j.status, facts = make('dl', 'facts rows');
    const fact = (title, text) => { if (text) facts.append(make('dt', '', title), make('dd', '', text)); };
    const pause = j.acts.find((a) => a.action === 'pause' && a.at === st.paused_since);
    if (st.paused) fact('Paused', 'since ' + when(st.paused_since) + (pause ? ', by ' + by(pause) : ''));
    fact('Schedule', st.schedule);
    fact('Next tick', st.paused ? '' : when(st.next));
    fact('Last tick', when(st.last));
    fact('Last success', when(st.last_success));
    fact('History since', when(st.begun));
    const plots = [plot('How long runs took', j.runs, took), plot('How late they began', j.runs, late)].filter(Boolean);
    const focused = about.contains(document.activeElement) && document.activeElement.ariaLabel;
    fill(about, make('section', '', facts), plots.length && make('section', '', make('div', 'plots rows', ...plots)),
      part('Open runs', ...st.open.map((o) => runItem(o.running ? 'r' : 'w', o, o.attempt && 'since ' + when(o.since), o.request && o.request.action + ' by ' + by(o.request),
        o.canceled && 'canceled ' + when(o.canceled.at) + ' by ' + by(o.canceled)))),
      part('At an instant', ...(st.pending || []).map((p) => make('li', 'run', make('div', 'line', make('span', 'who', when(p.at) + ': ' + p.id),
        make('span', 'quiet', word(p.payload_bytes, 'byte', 'bytes') + ', by ' + p.by))))),
      part('Replicas', ...(st.definitions.length ? st.definitions.map((d) => make('li', 'run',
        make('div', 'line', make('span', 'who', 'definition ' + d.id + (d.acts ? ' runs the job' : ' waits'))),
        ...d.replicas.map((one) => make('div', 'line', make('span', '', one.identity), make('span', 'quiet', 'since ' + when(one.since)))))) : [make('li', 'run', 'no replica follows the job')])),
      part('Acts of operators', ...j.acts.map((a) => make('li', 'run', make('div', 'line', make('span', 'who', when(a.at) + ': ' + a.action),
        make('span', 'quiet', 'by ' + by(a)), when(a.tick) && make('span', 'quiet', (a.triggered ? 'triggered ' : 'tick ') + when(a.tick)))))),
      part('Runs', ...j.runs.map((e) => runItem(outcomeOf(e.outcome), e, between(e.start, e.end), several(e) && (e.count ? word(e.count, 'tick', 'ticks') : 'ticks') + ' to ' + when(e.last)))),
      j.more && make('p', 'quiet', 'These are the newest ' + j.runs.length + '. "noonctl history ' + only + '" shows all.'));
    if (focused) [...about.querySelectorAll('button')].find((b) => b.ariaLabel === focused)?.focus();
  };

  // ---- The terms of an election.
  const terms = async (r) => {
    const list = make('ul', '', 'reading');
    openDialog(r, 'Election ' + r.name + ': terms of the last week', list, make('div', 'buttons', closeButton()));
    try {
      const all = await read('terms', { name: r.name });
      fill(list, ...all.map((t) => make('li', 'line', make('span', 'who', t.Holder), make('span', 'quiet', 'term ' + t.Term), make('span', 'quiet number', 'token ' + t.Token),
        make('span', 'quiet', 'from ' + when(t.Acquired) + (when(t.Released) && ', for ' + span(Date.parse(t.Released) - Date.parse(t.Acquired)))))), !all.length && make('li', 'quiet', 'none'));
    } catch (failure) {
      fill(list, make('li', 'error', failure.message));
    }
  };
  let reading = false, readAgain = false, shown = '', broken = '';
  const readAbout = async () => { // one at a time
    readAgain = true;
    if (reading) return;
    for (reading = true; readAgain;) {
      readAgain = false;
      try {
        const j = await readJob(only), text = JSON.stringify({ ...j, status: { ...j.status, now: 0 } });
        lists.jobs.ul.hidden = false;
        if (text !== shown) showAbout(j);
        shown = text;
        broken = '';
      } catch (failure) {
        shown = '';
        broken = failure.code === 404 ? '' : failure.message;
        lists.jobs.ul.hidden = failure.code === 404;
        fill(about, make('p', 'error', failure.message));
      }
    }
    reading = false;
  };

  // ---- Actions. Each needs a confirmation.
  let acting = false;
  const acts = {
    pause: { kind: 'jobs', label: 'Pause', reason: true, what: 'Replicas start no run of this job until it is resumed. Runs that have begun continue.', fits: (d) => !d.paused },
    resume: { kind: 'jobs', label: 'Resume', reason: true, what: 'Replicas run the job again. Ticks that were due meanwhile run or are skipped as the job is configured.', fits: (d) => d.paused },
    trigger: { kind: 'jobs', label: 'Trigger', reason: true, what: 'A replica runs the job once more, now or after the current run. It is a run of its own, in addition to the schedule.' },
    cancel: { kind: 'jobs', label: 'Cancel', reason: true, what: 'The context of the run ends. The run is recorded, and not attempted again.', all: 'All runs of this job that are running are canceled.', fits: (d) => (d.open || []).some((o) => o.running) },
    rerun: { label: 'Run again', reason: true, each: 'The last run of each of these jobs has failed or is unknown. It runs again.', what: 'A replica runs the tick again under the same name. Effects that do not use a marker or an idempotency key may happen twice.' },
    resign: { kind: 'elections', label: 'Resign', reason: true, what: 'The leader is asked to resign. The first candidate leads when its work has ended.', fits: (d) => d.leader, token: (d) => d.token },
    release: { kind: 'locks', label: 'Release', type: true, reason: true, what: 'The lock is taken away from its holders, except those that begin after now. Their work does not end at once, so until their next renewal two of them may work. Stop the process of the holder instead if you can.', fits: (d) => d.holders && (d.holders.length || d.no_ttl), token: (d) => d.newest },
  };
  const addActs = (r, kind) => {
    r.buttons = Object.entries(acting ? acts : {}).filter(([, a]) => a.kind === kind).map(([name, a]) => {
      const b = button(a.label, () => confirm(name, r));
      b.fits = a.fits;
      return b;
    });
    if (kind === 'elections') r.buttons.push(button('Terms', () => terms(r)));
    for (const b of r.buttons) {
      b.setAttribute('aria-label', b.textContent + ' ' + r.name);
      b.hidden = true;
    }
    fill(r.acts, ...r.buttons);
  };
  // post sends an action, and returns why it was not done, or ''.
  const post = async (name, fields) => {
    let sent = false;
    try {
      const request = new Request(urlOf('act'), {
        method: 'POST', headers: { 'Content-Type': 'application/json', 'Noonlock-Action': name },
        signal: AbortSignal.timeout(30000), body: JSON.stringify({ action: name, ...fields }),
      });
      sent = true;
      const answer = await fetch(request);
      const unknown = [502, 504].includes(answer.status); // a proxy or Redis gave no answer
      return answer.ok ? '' : (unknown ? 'The action may have been done: ' : 'Not done: ') + await said(answer);
    } catch (failure) {
      return (sent ? 'There was no answer, so the action may have been done: ' : 'Not done, because the browser did not send it: ') + failure.message;
    }
  };
  // confirm asks for an action on a row, on one run of it, or on all jobs that are given.
  const confirm = (name, r, q, all) => {
    const a = acts[name], token = a.token ? a.token(r.data) : ''; // as shown now
    const parts = [make('p', '', a.what)];
    if (q) parts.unshift(make('p', '', describe(q)));
    else if (all) parts.unshift(a.each && make('p', '', a.each));
    else if (a.all) parts.unshift(make('p', '', a.all));
    else if (a.kind === 'locks') parts.unshift(make('p', '', r.data.holders.map((h) => 'held by ' + (h.identity || 'another program') + owner(h)).join('\n')));
    else if (a.kind === 'elections') parts.unshift(make('p', '', 'leader ' + r.data.leader));
    const go = button(a.label, () => send()), error = make('p', 'error');
    error.setAttribute('role', 'alert');
    const field = (label, tag = 'input', ...children) => {
      const input = make(tag, '', ...children);
      input.maxLength = 200;
      input.autocomplete = 'off';
      input.addEventListener('keydown', (event) => { if (event.key === 'Enter' && !event.repeat && !go.disabled) go.click(); });
      parts.push(make('label', 'field', label, input));
      return input;
    };
    const names = [...new Set((r.data?.candidates || []).map((c) => c.identity))];
    const to = name === 'resign' && names.length && field('Next leader', 'select', ...['', ...names].map((value) => Object.assign(make('option', '', value || 'the first candidate'), { value })));
    const reason = a.reason && field('Reason, for logs and the history (optional)');
    if (a.type) {
      const typed = field('Type the name of the lock');
      go.disabled = true;
      typed.addEventListener('input', () => { go.disabled = typed.value !== escaped(r.name); });
    }
    go.className = 'go';
    go.disabled ||= all?.length === 0;
    const send = async () => {
      sending = go.disabled = true;
      put(error, '');
      const failed = [];
      for (const [i, one] of (all || [r.name]).entries()) {
        if (all) put(error, i + ' of ' + all.length + ' done');
        const why = await post(name, { name: one, tick: q ? q.tick : 0, token, to: to ? to.value : '', reason: reason ? reason.value : '' });
        if (why) failed.push(all ? one + ': ' + why : why);
      }
      sending = false;
      go.disabled = !!all;
      if (!all && !failed.length) { closeDialog(); return; }
      const some = failed.slice(0, 5).concat(failed.length > 5 ? failed.length - 5 + ' more' : []).join('; ');
      put(error, all ? all.length - failed.length + ' of ' + all.length + ' done.' + (some && ' ' + some) : failed[0]);
      if (!$('dialog').open) $('dialog').showModal(); // the user has closed it before the answer
    };
    openDialog(r, all ? a.label + ' ' + r.name + '?' : a.label + ': ' + r.name, ...parts, error, make('div', 'buttons', closeButton(), go));
  };
  // actOnAll asks for an action on all jobs that the filters leave and for which it does something.
  const actOnAll = async (name) => {
    const opener = { buttons: lists.jobs.all };
    try {
      const all = await read('jobs', [...view, ['act', name]]);
      const fit = (view.get('q') ? ' matching “' + view.get('q') + '”' : '') + (view.get('state') ? ', ' + (states[view.get('state')] || 'any') : '');
      confirm(name, { ...opener, name: word(all.length, 'job', 'jobs') + fit }, null, all);
    } catch (failure) {
      openDialog(opener, acts[name].label, make('p', 'error', failure.message), make('div', 'buttons', closeButton()));
    }
  };

  // ---- Lists.
  const choice = (key, label, all) => {
    const e = make('select', '', ...Object.entries(all).map(([value, text]) => Object.assign(make('option', '', text), { value })));
    e.setAttribute('aria-label', label);
    e.value = Object.hasOwn(all, view.get(key)) ? view.get(key) : '';
    e.addEventListener('change', () => {
      view.delete('jobs'); // the number of the page
      if (e.value) view.set(key, e.value); else view.delete(key);
      connect();
    });
    return e;
  };
  const states = { '': 'any state', failing: 'failing', overdue: 'overdue', running: 'running', alone: 'without replicas', paused: 'paused' };
  for (const [kind, l] of Object.entries(lists)) {
    l.rows = new Map();
    l.ul = make('ul', 'rows');
    l.count = make('span', 'quiet');
    l.error = make('p', 'error');
    l.error.hidden = true;
    const go = (by) => (event) => {
      if (event.currentTarget.ariaDisabled === 'true') return;
      view.set(kind, Math.max(1, l.page + by));
      connect();
    };
    l.back = button('‹', go(-1));
    l.on = button('›', go(1));
    l.back.setAttribute('aria-label', 'Previous page of ' + l.title.toLowerCase());
    l.on.setAttribute('aria-label', 'Next page of ' + l.title.toLowerCase());
    l.choices = kind === 'jobs' ? [
      choice('state', 'State of jobs', states),
      choice('sort', 'Order of jobs', { '': 'attention first', name: 'by name', next: 'by next tick' }),
    ] : [];
    l.all = kind === 'jobs' ? ['pause', 'resume', 'rerun'].map((name) => button(acts[name].label + ' all…', () => actOnAll(name))) : [];
    for (const c of [...l.choices, ...l.all]) c.hidden = true;
    l.root = make('section', '', make('div', 'head', make('h2', '', l.title), l.count, ...l.all, ...l.choices, l.back, l.on), l.error, l.ul);
    l.root.id = kind;
    l.back.hidden = l.on.hidden = true;
    put(l.count, 'searching');
    l.root.hidden = only && kind !== 'jobs';
    $('main').append(l.root);
  }
  if (only) {
    lists.jobs.root.firstChild.hidden = $('filter').hidden = true;
    $('all').hidden = false;
    $('all').href = urlOf('');
    $('main').append(about);
  }
  const showSection = (kind, l, s) => {
    l.page = s.page;
    let text = s.state === 'searching' ? 'searching' : s.all ? String(s.all) : s.error ? '' : l.none;
    if (s.all && s.fit !== s.all) text = s.state === 'searching' ? 'searching' : s.fit + ' of ' + s.all;
    for (const [state, n] of Object.keys(states).map((state) => [state, s.counts?.[state]])) if (n) text += ', ' + n + ' ' + states[state];
    for (const c of l.choices) c.hidden = !s.all;
    for (const [i, state] of [, 'paused', 'failing'].entries()) if (l.all[i]) l.all[i].hidden = !acting || !s.fit || state && !s.counts?.[state];
    if (s.pages > 1) text += ', page ' + s.page + ' of ' + s.pages;
    put(l.count, text);
    put(l.error, s.error || '');
    l.error.hidden = !s.error;
    l.back.hidden = l.on.hidden = s.pages < 2;
    // A button that is disabled otherwise loses the focus.
    l.back.ariaDisabled = s.page <= 1;
    l.on.ariaDisabled = s.page >= s.pages;
    const old = l.rows;
    l.rows = new Map();
    for (const name of s.names) {
      const r = old.get(name) || row(name, kind);
      l.rows.set(name, r);
    }
    const roots = [...l.rows.values()].map((r) => r.root);
    // Rows that stay are not moved, since a row that is moved loses the focus.
    for (const e of [...l.ul.children]) if (!roots.includes(e)) e.remove();
    roots.forEach((e, i) => { if (l.ul.children[i] !== e) l.ul.insertBefore(e, l.ul.children[i]); });
  };
  const showItem = (l, data) => {
    const r = l.rows.get(data.name);
    if (!r) return;
    if (only) readAbout();
    r.data = data;
    r.root.classList.toggle('gone', !!data.gone);
    const focused = document.activeElement;
    const had = r.root.contains(focused);
    for (const b of r.buttons || []) b.hidden = !!(data.error || data.gone || (b.fits && !b.fits(data)));
    if (data.error || data.gone) {
      r.strip = null;
      fill(r.body, make('div', data.error ? 'error' : 'quiet', data.error || 'ended'));
    } else l.show(r, data);
    if (had ? focused.hidden || !focused.isConnected : unfocused === r && focused === document.body) focusRow(r);
  };

  // ---- The stream.
  let source = null, heard = 0, known = null, retry = 0; // known: the last frame that is live or stale
  const connect = () => {
    if (source) source.close();
    clearTimeout(retry);
    if (document.hidden) return; // as in a tab that opens in the background
    const query = view.toString();
    history.replaceState(null, '', query ? '?' + query : location.pathname);
    const url = urlOf('events' + (query ? '?' + query : ''));
    source = new EventSource(url);
    source.onmessage = (event) => {
      const f = JSON.parse(event.data);
      heard = Date.now();
      skew = f.now - heard;
      if (f.live || f.stale) known = f;
      if (f.live && broken) readAbout();
      if (f.title) acting = !!f.actions; // the first frame has both
      if (f.title) { put($('title'), f.title); document.title = escaped((only ? only + ' · ' : '') + f.title); }
      for (const [kind, s] of Object.entries(f.sections || {})) showSection(kind, lists[kind], s);
      for (const [kind, all] of Object.entries(f.items || {})) for (const one of all) showItem(lists[kind], one);
      state();
      update();
    };
    source.onerror = () => {
      lost = true;
      state();
      // The browser connects again by itself, unless the answer was an error.
      if (source.readyState === EventSource.CLOSED) ask(source, url);
    };
    source.onopen = () => { lost = false; refusal = ''; state(); };
  };
  let lost = false, refusal = '';
  // ask finds out why a stream was refused, which an EventSource does not tell, and connects later.
  const ask = async (refused, url) => {
    let why = '', wait = 3;
    try {
      const stop = new AbortController(), answer = await fetch(url, { signal: stop.signal });
      if (!answer.ok) {
        wait = Math.min(60, Number(answer.headers.get('Retry-After')) || wait);
        why = await said(answer) + '. It is asked again every ' + wait + ' s.';
      }
      stop.abort();
    } catch { /* there is no connection */ }
    if (refused !== source) return; // another stream was opened meanwhile
    refusal = why;
    state();
    retry = setTimeout(connect, wait * 1000);
  };
  const state = () => {
    const silent = heard && Date.now() - heard > 12000;
    let text = 'live';
    const since = heard ? ' since ' + instant(Math.floor((heard + skew) / 1000) * 1000) : '';
    if (lost && refusal) text = (heard ? 'Out of date' + since : 'Not connected') + '. The server of this page says: ' + refusal;
    else if (lost || silent) text = 'Out of date. There is no connection to the server of this page' + since + '.';
    else if (known?.stale) text = 'Out of date since ' + instant(Math.floor(known.since / 1000) * 1000) + '. ' + known.stale;
    else if (broken) text = 'Out of date. Not read: the details of the job. ' + broken;
    else if (!known) text = 'connecting';
    put($('state'), text);
    document.body.classList.toggle('live', text === 'live');
    document.body.classList.toggle('stale', text !== 'live' && text !== 'connecting');
  };
  const update = () => {
    for (const e of document.querySelectorAll('.ticks')) e.live();
    retip();
  };
  setInterval(() => { if (!document.hidden) { state(); update(); } }, 250);
  // A hidden page needs no reads of Redis, so connect then only closes the stream.
  document.addEventListener('visibilitychange', connect);

  let typing = 0;
  $('filter').value = view.get('q') || '';
  $('filter').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      for (const kind of Object.keys(lists)) view.delete(kind);
      if ($('filter').value) view.set('q', $('filter').value); else view.delete('q');
      connect();
    }, 250);
  });
  connect();
})();
