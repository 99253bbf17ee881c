// Opened from disk, a browser allows no workers. The search then runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(address) {
      window.fromSearch = data => setTimeout(() => this.onmessage(new MessageEvent("message", { data })));
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc =
        `<script>var postMessage = data => parent.fromSearch(data)</script><script src="${address}"></script>`;
      this.loaded = new Promise(resolve => (this.frame.onload = resolve));
      document.body.append(this.frame);
    }
    async postMessage(data) {
      await this.loaded;
      setTimeout(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
