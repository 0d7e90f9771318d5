// A browser starts no worker for a page that was opened from a file. There an invisible frame runs the search.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) =>
        urls.reduce((before, src) => before.then(() => load(inside.document, src)), Promise.resolve());
      this.ready = load(inside.document, url);
      this.postMessage = (data) =>
        this.ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
    }
  };
  const load = (page, src) =>
    new Promise((done) => {
      const script = page.createElement("script");
      script.src = src;
      script.onload = done;
      page.body.appendChild(script);
    });
  window.Worker = window.IFrameWorker;
}
