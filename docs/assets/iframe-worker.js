// A page that is opened as a file may not start a worker, and search runs in one. Here its script runs in a hidden frame
// of the same page instead: messages to it become events in the frame, and what it posts becomes an event out here.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      const emit = (target, data) => target.dispatchEvent(new MessageEvent("message", { data }));
      inside.postMessage = (data) => emit(this, data);
      inside.importScripts = (...urls) =>
        urls.reduce((before, url) => before.then(() => load(inside, url)), Promise.resolve());
      const ready = load(inside, url);
      this.postMessage = (data) => ready.then(() => emit(inside, data));
      this.terminate = () => frame.remove();
    }
  };
  const load = (inside, url) =>
    new Promise((done, failed) => {
      const script = inside.document.createElement("script");
      script.src = String(new URL(url, location.href));
      script.onload = done;
      script.onerror = failed;
      inside.document.documentElement.append(script);
    });
  window.Worker = window.IFrameWorker;
}
