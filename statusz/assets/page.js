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
  // span and instant return the texts of overview.Span and Instant.
  const span = (ms) => {
    if (ms < 1000) return Math.round(ms) + 'ms';
    return ms < 10000 ? Math.round(ms / 100) / 10 + 's' : rough(ms / 1000);
  };
  const rough = (seconds) => { // whole seconds, for what changes while it is shown
    const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(m / 60);
    if (!m) return s + 's';
    if (!h) return m + 'm' + (s % 60 ? s % 60 + 's' : '');
    return h < 48 ? h + 'h' + (m % 60 ? m % 60 + 'm' : '') : Math.floor(h / 24) + 'd' + h % 24 + 'h';
  };
  const relative = (at) => (at > clock() ? 'in ' + rough(Math.ceil((at - clock()) / 1000)) : rough((clock() - at) / 1000) + ' ago');
  const instant = (at) => {
    const d = new Date(at);
    return isNaN(d) ? '' : d.toISOString().replace(/\.?0*Z$/, 'Z');
  };
  const word = (n, one, many) => n + ' ' + (n === 1 ? one : many);
  // live is a text that changes with time.
  const live = (cls, text) => {
    const e = make('span', cls + ' ticks');
    e.live = () => put(e, text());
    e.live();
    return e;
  };
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
    const r = { name, kind, data: null, body: make('div', 'body'), acts: make('div', 'acts') };
    r.root = make('li', 'row', make('div', '', make('div', 'name', kind === 'jobs' && !only ? linkTo(name) : name), r.acts), r.body);
    addActs(r, kind);
    return r;
  };
  // cell returns the element of an overview.Cell. A name and a state have no label.
  const cell = (c) => {
    const value = c.at ? live('', () => relative(c.at)) : c.t;
    const e = make('span', (c.c || '') + ' number', !/^(who|chip)/.test(c.c) && make('span', 'quiet', c.l + ' '), value);
    if (c.at) e.title = instant(c.at);
    return e;
  };
  const line = (cells) => make('div', 'line', ...cells.filter((c) => c.t || c.at).map(cell));
  // bar returns the part of a lease that is left.
  const bar = (c) => {
    const part = make('i'), e = make('div', 'bar ticks', part);
    e.setAttribute('aria-hidden', 'true'); // the text says the same
    e.live = () => {
      const left = Math.min(1, Math.max(0, (c.at - clock()) / c.of));
      part.style.transform = 'scaleX(' + left.toFixed(3) + ')';
      e.classList.toggle('low', left < 1 / 3);
    };
    return e;
  };
  const list = (l) => make('ol', 'queue', make('li', '', l.title + ':'), ...l.rows.map((one) => make('li', '', line(one.cells))),
    l.more && make('li', '', 'and ' + l.more + ' more'));
  const showRow = (r, d) => {
    if (!r.line) {
      r.line = make('div');
      r.lists = make('div');
      if (r.kind === 'jobs') makeStrip(r);
      fill(r.body, r.line, r.strip, r.lists);
    }
    fill(r.line, line(d.lines), ...d.lines.filter((c) => c.of).map(bar));
    fill(r.lists, ...(only ? [] : d.lists || []).map(list));
    if (r.strip) r.restrip(d.runs || []);
  };

  // idOf tells runs apart. A run may run again, and while it is open, its text changes.
  const idOf = (q) => (q.verb === 'cancel' ? String(q.k) : q.k + q.t);
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
      r.chosen = idOf(r.squares[i]);
      [...strip.children].forEach((e, n) => e.classList.toggle('on', n === i));
      strip.setAttribute('aria-activedescendant', strip.children[i].id);
      tip(strip.children[i], r.squares[i]);
    };
    const current = () => r.squares.findIndex((q) => idOf(q) === r.chosen);
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
      const same = all.length === r.squares.length && all.every((q, i) => idOf(q) === idOf(r.squares[i]) && q.c === r.squares[i].c);
      const chosen = current(), tippedAt = [...strip.children].indexOf(tipped?.over);
      const tippedId = tippedAt < 0 ? '' : idOf(r.squares[tippedAt]);
      r.squares = all;
      if (!same) {
        strip.replaceChildren(...all.map((q, i) => {
          const e = make('li', q.c);
          e.id = strip.id + '.' + i;
          e.setAttribute('role', 'option');
          return e;
        }));
      }
      all.forEach((q, i) => strip.children[i].setAttribute('aria-label', q.t));
      // The square of a run that has ended replaces that of the open run.
      const place = (id, before) => { const i = all.findIndex((q) => idOf(q) === id); return i < 0 ? Math.min(before, last()) : i; };
      if (tippedAt >= 0 && last() < 0) hideTip();
      else if (tippedAt >= 0) { const i = place(tippedId, tippedAt); tip(strip.children[i], all[i]); }
      if (chosen < 0 || last() < 0) return;
      const i = place(r.chosen, chosen);
      r.chosen = idOf(all[i]);
      strip.setAttribute('aria-activedescendant', strip.children[i].id);
      strip.children[i].classList.toggle('on', document.activeElement === strip && strip.matches(':focus-visible'));
    };
  };

  const lists = {
    elections: { title: 'Elections', none: 'No election had a leader within the last week.' },
    jobs: { title: 'Jobs', none: 'No job has a history.' },
    locks: { title: 'Locks', none: 'No lock is held or waited for.' },
    partitions: { title: 'Partitions', none: 'No replicas share partitions.' },
  };

  // ---- The details of a square, by mouse, tap and keyboard.
  let tipped = null; // the square whose details are shown, and its element
  const tip = (over, q) => {
    tipped = { over, q };
    const t = $('tip');
    put(t, q.t);
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
  const offer = (r, q, text) => acting && q.verb && button(acts[q.verb].label + '…', () => confirm(q.verb, r(), { k: q.k, t: text }));
  const details = (r, q) => {
    const text = make('p', '', q.t);
    openDialog(r, 'Job ' + r.name, text, make('div', 'buttons', offer(() => r, q, q.t), closeButton()));
    if (q.t.endsWith('…')) whole(r.name, q).then((error) => put(text, q.t.replace(/\nerror [^]*/, '\nerror ' + error)), (failure) => text.append('\n(not the whole error: ' + failure.message + ')'));
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
    const same = (run) => run.k === q.k && run.c === q.c && run.cells.every((c) => ['error', 'token', 'since'].includes(c.l) || !c.t || q.t.includes(c.t));
    const run = (await readJob(name)).lists.flatMap((l) => l.rows || []).find(same);
    if (!run) throw new Error('the run has changed');
    return run.cells.at(-1).t;
  };
  const item = (row) => {
    const b = row.k && offer(() => lists.jobs.rows.get(only), row, row.cells[0].t);
    b?.setAttribute?.('aria-label', b.textContent.slice(0, -1) + ', ' + row.cells[0].t);
    const e = make('li', 'run', line(row.cells), b && make('div', 'acts', b));
    if (row.k) e.firstChild.prepend(make('span', 'strip', make('li', row.c)));
    return e;
  };
  // plot returns bars for times, the oldest run first; null: there are none. CSS sets their colors.
  const plot = (title, runs, time) => {
    const svg = (tag, attributes, ...children) => {
      const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
      for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
      e.append(...children);
      return e;
    };
    const all = runs.filter((e) => e[time] >= 0).map((e) => ({ e, ms: e[time] })).reverse();
    if (!all.length) return null;
    const most = Math.max(...all.map((one) => one.ms)), text = title + ', at most ' + span(most);
    return make('div', 'plot', make('div', 'quiet', text), svg('svg', { viewBox: '0 0 ' + 6 * all.length + ' 40', width: 6 * all.length, height: 40, preserveAspectRatio: 'none', role: 'img', 'aria-label': text },
      ...all.map(({ e, ms }, i) => {
        const height = Math.max(1, 40 * ms / (most || 1));
        return svg('rect', { x: 6 * i, y: 40 - height, width: 5, height, class: e.c }, svg('title', {}, e.cells[0].t + ': ' + span(ms)));
      })));
  };
  const about = make('div');
  const part = (title, ...rows) => make('section', '', make('div', 'head', make('h2', '', title)), make('ul', 'rows', ...rows));
  const showAbout = (j) => {
    const runs = j.lists.at(-1).rows || [];
    const plots = [plot('How long runs took', runs, 'took'), plot('How late they began', runs, 'late')].filter(Boolean);
    const focused = about.contains(document.activeElement) && document.activeElement.ariaLabel;
    fill(about, plots.length && make('section', '', make('div', 'plots rows', ...plots)), ...j.lists.filter((l) => l.rows).map((l) => part(l.title, ...l.rows.map(item))));
    if (focused) [...about.querySelectorAll('button')].find((b) => b.ariaLabel === focused)?.focus();
  };

  // ---- The terms of an election.
  const showTerms = async (r) => {
    const terms = make('ul', '', 'reading');
    openDialog(r, 'Election ' + r.name + ': terms of the last week', terms, make('div', 'buttons', closeButton()));
    try {
      const all = await read('terms', { name: r.name });
      fill(terms, ...(all.rows || []).map((t) => make('li', '', line(t.cells))), !all.rows && make('li', 'quiet', 'none'));
    } catch (failure) {
      fill(terms, make('li', 'error', failure.message));
    }
  };
  let reading = false, readAgain = false, shown = '', broken = '';
  const readAbout = async () => { // one at a time
    readAgain = true;
    if (reading) return;
    for (reading = true; readAgain;) {
      readAgain = false;
      try {
        const j = await readJob(only), text = JSON.stringify(j);
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
    pause: { kind: 'jobs', label: 'Pause', reason: true, what: 'Replicas start no run of this job until it is resumed. Runs that have begun continue.' },
    resume: { kind: 'jobs', label: 'Resume', reason: true, what: 'Replicas run the job again. Ticks that were due meanwhile run or are skipped as the job is configured.' },
    trigger: { kind: 'jobs', label: 'Trigger', reason: true, what: 'A replica runs the job once more, now or after the current run. It is a run of its own, in addition to the schedule.' },
    cancel: { kind: 'jobs', label: 'Cancel', reason: true, what: 'The context of the run ends. The run is recorded, and not attempted again.', all: 'All runs of this job that have begun are canceled.' },
    rerun: { label: 'Run again', reason: true, each: 'The last run of each of these jobs has failed or is unknown. It runs again.', what: 'A replica runs the tick again under the same name. Effects that do not use a marker or an idempotency key may happen twice.' },
    resign: { kind: 'elections', label: 'Resign', reason: true, what: 'The leader is asked to resign. The first candidate leads when its work has ended.', token: true },
    release: { kind: 'locks', label: 'Release', type: true, reason: true, what: 'The lock is taken away from its holders, except those that begin after now. Their work does not end at once, so until their next renewal two of them may work. Stop the process of the holder instead if you can.', token: true },
  };
  const addActs = (r, kind) => {
    r.buttons = Object.entries(acting ? acts : {}).filter(([, a]) => a.kind === kind).map(([name, a]) => {
      const b = button(a.label, () => confirm(name, r));
      b.verb = name;
      return b;
    });
    if (kind === 'elections') r.buttons.push(button('Terms', () => showTerms(r)));
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
    const a = acts[name], token = a.token ? r.data.token : ''; // as shown now
    const parts = [make('p', '', a.what)];
    if (q) parts.unshift(make('p', '', q.t));
    else if (all) parts.unshift(a.each && make('p', '', a.each));
    else if (a.all) parts.unshift(make('p', '', a.all));
    else if (a.token) parts.unshift(line(r.data.lines), ...(r.data.lists || []).map(list));
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
    const names = name === 'resign' && r.data.lists ? [...new Set(r.data.lists[0].rows.map((one) => one.cells[0].t))] : [];
    const to = names.length && field('Next leader', 'select', ...['', ...names].map((value) => Object.assign(make('option', '', value || 'the first candidate'), { value })));
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
        const why = await post(name, { name: one, tick: q ? q.k : 0, token, to: to ? to.value : '', reason: reason ? reason.value : '' });
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
    for (const b of r.buttons || []) b.hidden = !!(data.error || data.gone || (b.verb && !data.verbs?.includes(b.verb)));
    if (data.error || data.gone) {
      r.line = r.strip = null;
      fill(r.body, make('div', data.error ? 'error' : 'quiet', data.error || 'ended'));
    } else showRow(r, data);
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
